use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_proto::csi::volume_capability::{AccessType, MountVolume, access_mode::Mode};

use crate::bench::{ATTACHMENTS, Bench, SECRET, VOLUME_HANDLE, VOLUMES};
use crate::driver::Answer;

#[tokio::test]
async fn a_volume_is_attached_step_by_step() {
    let Some(mut bench) = Bench::new("attach-steps", &[]).await else { return };
    bench.attached().await;
    let attachment = bench.get(ATTACHMENTS).await.unwrap();
    let status = json!({ "attached": true, "attachmentMetadata": { "device": "sda" } });
    assert_eq!(attachment["status"], status);
    let volume = bench.get(VOLUMES).await.unwrap();
    let finalizers = json!(["kubernetes.io/pv-protection", bench.finalizer()]);
    assert_eq!(volume["metadata"]["finalizers"], finalizers);
    bench.stop().await;
}

#[tokio::test]
async fn the_driver_is_told_all_about_the_volume() {
    let Some(mut bench) = Bench::new("attach-fields", &[rpc::Type::PublishReadonly]).await else {
        return;
    };
    bench.options.default_fs_type = "ext4".to_owned();
    let secret =
        json!({ "metadata": { "name": "attach-fields" }, "stringData": { "key": "hush" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    bench.node().await;
    bench
        .volume(|volume| {
            let csi = &mut volume["spec"]["csi"];
            csi["readOnly"] = json!(true);
            csi["volumeAttributes"] = json!({ "tier": "fast" });
            csi["controllerPublishSecretRef"] =
                json!({ "name": "attach-fields", "namespace": "default" });
            volume["spec"]["mountOptions"] = json!(["noatime"]);
        })
        .await;
    bench.attachment(|_| {}).await;
    bench.start();
    let [protect, _, publish, attached] = bench.attach_lines();
    let prepare = bench.prepare_line_noting(json!({
        VOLUME_HANDLE: "attach-fields-handle", SECRET: "default/attach-fields",
    }));
    let secret = "GET namespaces/default/secrets/attach-fields".to_owned();
    bench.journal.expect([protect, secret, prepare, publish, attached]).await;
    let request = bench.driver.attached("attach-fields-handle", "attach-fields-id").unwrap();
    assert!(request.readonly);
    assert_eq!(request.volume_context["tier"], "fast");
    assert_eq!(request.secrets["key"], "hush");
    let capability = request.volume_capability.unwrap();
    assert_eq!(capability.access_mode.unwrap().mode(), Mode::SingleNodeWriter);
    let mount = MountVolume {
        fs_type: "ext4".to_owned(),
        mount_flags: vec!["noatime".to_owned()],
        ..MountVolume::default()
    };
    assert_eq!(capability.access_type, Some(AccessType::Mount(mount)));

    // The same secret serves the detach.
    bench.journal.clear();
    bench.delete(ATTACHMENTS).await;
    bench.journal.wait_for(3).await;
    assert_eq!(bench.driver.last_detach().secrets["key"], "hush");
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_that_the_attachment_describes_itself_is_attached() {
    let Some(mut bench) = Bench::new("attach-inline", &[]).await else { return };
    bench.node().await;
    let driver = bench.options.driver.clone();
    bench
        .attachment(|attachment| {
            attachment["spec"]["source"] = json!({ "inlineVolumeSpec": {
                "accessModes": ["ReadWriteMany"],
                "csi": { "driver": driver, "volumeHandle": "attach-inline-handle" },
            }});
        })
        .await;
    bench.start();
    let [_, _, publish, attached] = bench.attach_lines();
    let prepare = bench.prepare_line_noting(json!({}));
    bench.journal.expect([prepare, publish, attached]).await;
    bench.journal.clear();
    bench.delete(ATTACHMENTS).await;
    bench.journal.expect([bench.unpublish_line(), bench.release_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn an_error_of_the_driver_is_saved_with_its_code_and_cleared_later() {
    let Some(mut bench) = Bench::new("attach-error", &[]).await else { return };
    bench.driver.answer(Answer::Error(Status::resource_exhausted("no slot")));
    bench.node().await;
    bench.volume(|_| {}).await;
    bench.attachment(|_| {}).await;
    bench.start();
    let [protect, prepare, publish, attached] = bench.attach_lines();
    let message = "rpc error: code = ResourceExhausted desc = no slot";
    let failed = format!("{publish} -> ResourceExhausted");
    let error = bench.attach_error_line(message, Some(8));
    bench.journal.expect([protect, prepare, failed, error, publish, attached]).await;
    let status = bench.get(ATTACHMENTS).await.unwrap()["status"].clone();
    assert_eq!(status["attachError"], json!(null));
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_asked_again() {
    let Some(mut bench) = Bench::new("attach-hang", &[]).await else { return };
    bench.driver.answer(Answer::Never);
    bench.node().await;
    bench.volume(|_| {}).await;
    bench.attachment(|_| {}).await;
    bench.start_with_timeout(Duration::from_millis(500));
    let lines = bench.journal.wait_for(6).await;
    let [protect, prepare, publish, attached] = bench.attach_lines();
    assert_eq!(lines[..3], [protect, prepare, format!("{publish} -> never")]);
    assert!(lines[3].contains(r#""errorCode":4"#), "{}", lines[3]);
    assert_eq!(lines[4..], [publish, attached]);
    bench.stop().await;
}

#[tokio::test]
async fn what_cannot_be_attached_says_why() {
    let Some(mut bench) = Bench::new("attach-why", &[]).await else { return };
    bench.options.backoff.first = Duration::from_mins(1);
    bench.attachment(|_| {}).await;
    bench.start();
    let unknown = bench.attach_error_line("persistentvolume \"attach-why\" not found", None);
    bench.journal.expect([unknown]).await;
    bench.stop().await;

    let mut bench = Bench::new("attach-why", &[]).await.unwrap();
    bench.options.backoff.first = Duration::from_mins(1);
    bench.volume(|_| {}).await;
    bench.start();
    let message = "csinode.storage.k8s.io \"attach-why\" not found";
    bench.journal.expect([bench.protect_line(), bench.attach_error_line(message, None)]).await;
    bench.stop().await;

    let mut bench = Bench::new("attach-why", &[]).await.unwrap();
    bench.options.backoff.first = Duration::from_mins(1);
    bench.delete(VOLUMES).await;
    bench.start();
    let message = "PersistentVolume \"attach-why\" is marked for deletion";
    bench.journal.expect([bench.attach_error_line(message, None)]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_unknown_is_waited_for_also_where_this_cannot_be_said() {
    let Some(mut bench) = Bench::new("attach-unsaid", &[]).await else { return };
    bench.journal.fail_once(Method::PATCH, "attach-unsaid/status", 500);
    bench.node().await;
    bench.attachment(|_| {}).await;
    bench.start();
    let error = bench.attach_error_line("persistentvolume \"attach-unsaid\" not found", None);
    bench.journal.line(&error).await;
    bench.volume(|_| {}).await;
    let [protect, prepare, publish, attached] = bench.attach_lines();
    bench.journal.line(&attached).await;
    // It is said again for as long as the volume is not there.
    let mut lines = bench.journal.lines();
    lines.retain(|line| *line != error);
    assert_eq!(lines, [format!("{error} -> 500"), protect, prepare, publish, attached]);
    bench.stop().await;
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_named_and_not_shown() {
    let Some(mut bench) = Bench::new("attach-secret", &[]).await else { return };
    bench.options.backoff.first = Duration::from_mins(1);
    let reference = json!({ "name": "attach-secret", "namespace": "default" });
    bench.volume(|it| it["spec"]["csi"]["controllerPublishSecretRef"] = reference).await;
    bench.attachment(|_| {}).await;
    bench.start();
    let path = "namespaces/default/secrets/attach-secret";
    let missing = "failed to load secret \"default/attach-secret\": Secret: not found";
    let lines = [
        bench.protect_line(),
        format!("GET {path} -> 404"),
        bench.attach_error_line(missing, None),
    ];
    bench.journal.expect(lines).await;
    bench.journal.clear();

    let secret = json!({ "metadata": { "name": "attach-secret" }, "data": { "key": "/w==" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    bench.node().await;
    let binary = "failed to load secret \"default/attach-secret\": \
        the value of key \"key\" is no text, and CSI has secrets that are texts only";
    bench.journal.expect([format!("GET {path}"), bench.attach_error_line(binary, None)]).await;
    bench.stop().await;
}

#[tokio::test]
async fn an_attachment_made_anew_does_not_get_the_status_of_the_one_before() {
    let Some(mut bench) = Bench::new("attach-anew", &[]).await else { return };
    bench.options.backoff.first = Duration::from_mins(1);
    let made_anew = CancellationToken::new();
    bench.driver.answer(Answer::When(made_anew.clone()));
    bench.node().await;
    bench.volume(|_| {}).await;
    bench.attachment(|_| {}).await;
    bench.start();
    bench.journal.wait_for(3).await;
    bench.patch(ATTACHMENTS, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete(ATTACHMENTS).await;
    bench.attachment(|_| {}).await;
    made_anew.cancel();
    let [_, prepare, publish, attached] = bench.attach_lines();
    let lines = bench.journal.wait_for(7).await;
    assert_eq!(lines[3], format!("{attached} -> 422"));
    assert_eq!(lines[4..], [prepare, publish, attached]);
    bench.stop().await;
}

#[tokio::test]
async fn what_is_attached_or_of_another_driver_is_left_alone() {
    let Some(mut bench) = Bench::new("attach-barrier", &[]).await else { return };
    bench.node().await;
    bench.volume(|_| {}).await;
    for (name, driver) in
        [("attach-done", bench.options.driver.as_str()), ("attach-foreign", "other")]
    {
        bench
            .attachment(|attachment| {
                attachment["metadata"]["name"] = json!(name);
                attachment["spec"]["attacher"] = json!(driver);
            })
            .await;
    }
    let done = Bench::new("attach-done", &[]).await.unwrap();
    done.patch_status(json!({ "attached": true })).await;
    bench.start();
    bench.attachment(|_| {}).await;
    bench.journal.expect(bench.attach_lines()).await;
    bench.stop().await;
}
