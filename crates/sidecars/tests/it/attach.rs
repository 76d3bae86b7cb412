use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::{
    controller_service_capability::rpc,
    volume_capability::{AccessType, MountVolume, access_mode::Mode},
};

use crate::{
    driver::Answer,
    fixture::{ATTACHMENTS, Fixture, SECRET, VOLUME_HANDLE, VOLUMES},
};

#[tokio::test]
async fn a_volume_is_attached_step_by_step() {
    let Some(mut fixture) = Fixture::new("attach-steps", &[]).await else { return };
    fixture.attached().await;
    let attachment = fixture.get(ATTACHMENTS).await.unwrap();
    let status = json!({ "attached": true, "attachmentMetadata": { "device": "sda" } });
    assert_eq!(attachment["status"], status);
    let volume = fixture.get(VOLUMES).await.unwrap();
    let finalizers = json!(["kubernetes.io/pv-protection", fixture.finalizer()]);
    assert_eq!(volume["metadata"]["finalizers"], finalizers);
    fixture.stop().await;
}

#[tokio::test]
async fn the_driver_is_told_all_about_the_volume() {
    let Some(mut fixture) = Fixture::new("attach-fields", &[rpc::Type::PublishReadonly]).await
    else {
        return;
    };
    fixture.options.default_fs_type = "ext4".to_owned();
    let secret =
        json!({ "metadata": { "name": "attach-fields" }, "stringData": { "key": "hush" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    fixture.node().await;
    fixture
        .volume(|volume| {
            let csi = &mut volume["spec"]["csi"];
            csi["readOnly"] = json!(true);
            csi["volumeAttributes"] = json!({ "tier": "fast" });
            csi["controllerPublishSecretRef"] =
                json!({ "name": "attach-fields", "namespace": "default" });
            volume["spec"]["mountOptions"] = json!(["noatime"]);
        })
        .await;
    fixture.attachment(|_| {}).await;
    fixture.start();
    let [protect, _, publish, attached] = fixture.attach_lines();
    let prepare = fixture.prepare_line_noting(json!({
        VOLUME_HANDLE: "attach-fields-handle", SECRET: "default/attach-fields",
    }));
    let secret = "GET namespaces/default/secrets/attach-fields".to_owned();
    fixture.journal.expect([protect, secret, prepare, publish, attached]).await;
    let request = fixture.driver.attached("attach-fields-handle", "attach-fields-id").unwrap();
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

    // The detach uses the same secret.
    fixture.journal.clear();
    fixture.delete(ATTACHMENTS).await;
    fixture.journal.wait_for(3).await;
    assert_eq!(fixture.driver.last_detach().secrets["key"], "hush");
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_that_the_attachment_describes_itself_is_attached() {
    let Some(mut fixture) = Fixture::new("attach-inline", &[]).await else { return };
    fixture.node().await;
    let driver = fixture.options.driver.clone();
    fixture
        .attachment(|attachment| {
            attachment["spec"]["source"] = json!({ "inlineVolumeSpec": {
                "accessModes": ["ReadWriteMany"],
                "csi": { "driver": driver, "volumeHandle": "attach-inline-handle" },
            }});
        })
        .await;
    fixture.start();
    let [_, _, publish, attached] = fixture.attach_lines();
    let prepare = fixture.prepare_line_noting(json!({}));
    fixture.journal.expect([prepare, publish, attached]).await;
    fixture.journal.clear();
    fixture.delete(ATTACHMENTS).await;
    fixture.journal.expect([fixture.unpublish_line(), fixture.release_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn an_error_of_the_driver_is_saved_with_its_code_and_cleared_later() {
    let Some(mut fixture) = Fixture::new("attach-error", &[]).await else { return };
    fixture.driver.answer(Answer::Error(Status::resource_exhausted("no slot")));
    fixture.node().await;
    fixture.volume(|_| {}).await;
    fixture.attachment(|_| {}).await;
    fixture.start();
    let [protect, prepare, publish, attached] = fixture.attach_lines();
    let message = "rpc error: code = ResourceExhausted desc = no slot";
    let failed = format!("{publish} -> ResourceExhausted");
    let error = fixture.attach_error_line(message, Some(8));
    fixture.journal.expect([protect, prepare, failed, error, publish, attached]).await;
    let status = fixture.get(ATTACHMENTS).await.unwrap()["status"].clone();
    assert_eq!(status["attachError"], json!(null));
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_asked_again() {
    let Some(mut fixture) = Fixture::new("attach-hang", &[]).await else { return };
    fixture.driver.answer(Answer::Never);
    fixture.node().await;
    fixture.volume(|_| {}).await;
    fixture.attachment(|_| {}).await;
    fixture.start_with_timeout(Duration::from_millis(500));
    let lines = fixture.journal.wait_for(6).await;
    let [protect, prepare, publish, attached] = fixture.attach_lines();
    assert_eq!(lines[..3], [protect, prepare, format!("{publish} -> never")]);
    assert!(lines[3].contains(r#""errorCode":4"#), "{}", lines[3]);
    assert_eq!(lines[4..], [publish, attached]);
    fixture.stop().await;
}

#[tokio::test]
async fn what_cannot_be_attached_says_why() {
    let Some(mut fixture) = Fixture::new("attach-why", &[]).await else { return };
    fixture.options.backoff.first = Duration::from_mins(1);
    fixture.attachment(|_| {}).await;
    fixture.start();
    let unknown = fixture.attach_error_line("persistentvolume \"attach-why\" not found", None);
    fixture.journal.expect([unknown]).await;
    fixture.stop().await;

    let mut fixture = Fixture::new("attach-why", &[]).await.unwrap();
    fixture.options.backoff.first = Duration::from_mins(1);
    fixture.volume(|_| {}).await;
    fixture.start();
    let message = "csinode.storage.k8s.io \"attach-why\" not found";
    fixture
        .journal
        .expect([fixture.protect_line(), fixture.attach_error_line(message, None)])
        .await;
    fixture.stop().await;

    let mut fixture = Fixture::new("attach-why", &[]).await.unwrap();
    fixture.options.backoff.first = Duration::from_mins(1);
    fixture.delete(VOLUMES).await;
    fixture.start();
    let message = "PersistentVolume \"attach-why\" is marked for deletion";
    fixture.journal.expect([fixture.attach_error_line(message, None)]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_unknown_is_waited_for_also_where_this_cannot_be_said() {
    let Some(mut fixture) = Fixture::new("attach-unsaid", &[]).await else { return };
    fixture.journal.fail_once(Method::PATCH, "attach-unsaid/status", 500);
    fixture.node().await;
    fixture.attachment(|_| {}).await;
    fixture.start();
    let error = fixture.attach_error_line("persistentvolume \"attach-unsaid\" not found", None);
    fixture.journal.line(&error).await;
    fixture.volume(|_| {}).await;
    let [protect, prepare, publish, attached] = fixture.attach_lines();
    fixture.journal.line(&attached).await;
    // The error is written again while the volume is missing.
    let mut lines = fixture.journal.lines();
    lines.retain(|line| *line != error);
    assert_eq!(lines, [format!("{error} -> 500"), protect, prepare, publish, attached]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_named_and_not_shown() {
    let Some(mut fixture) = Fixture::new("attach-secret", &[]).await else { return };
    fixture.options.backoff.first = Duration::from_mins(1);
    let reference = json!({ "name": "attach-secret", "namespace": "default" });
    fixture.volume(|it| it["spec"]["csi"]["controllerPublishSecretRef"] = reference).await;
    fixture.attachment(|_| {}).await;
    fixture.start();
    let path = "namespaces/default/secrets/attach-secret";
    let missing = "failed to load secret \"default/attach-secret\": Secret: not found";
    let lines = [
        fixture.protect_line(),
        format!("GET {path} -> 404"),
        fixture.attach_error_line(missing, None),
    ];
    fixture.journal.expect(lines).await;
    fixture.journal.clear();

    let secret = json!({ "metadata": { "name": "attach-secret" }, "data": { "key": "/w==" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    fixture.node().await;
    let binary = "failed to load secret \"default/attach-secret\": \
        the value of key \"key\" is no text, and CSI has secrets that are texts only";
    fixture.journal.expect([format!("GET {path}"), fixture.attach_error_line(binary, None)]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn an_attachment_made_anew_does_not_get_the_status_of_the_one_before() {
    let Some(mut fixture) = Fixture::new("attach-anew", &[]).await else { return };
    fixture.options.backoff.first = Duration::from_mins(1);
    let made_anew = CancellationToken::new();
    fixture.driver.answer(Answer::When(made_anew.clone()));
    fixture.node().await;
    fixture.volume(|_| {}).await;
    fixture.attachment(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(3).await;
    fixture.patch(ATTACHMENTS, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete(ATTACHMENTS).await;
    fixture.attachment(|_| {}).await;
    made_anew.cancel();
    let [_, prepare, publish, attached] = fixture.attach_lines();
    let lines = fixture.journal.wait_for(7).await;
    assert_eq!(lines[3], format!("{attached} -> 422"));
    assert_eq!(lines[4..], [prepare, publish, attached]);
    fixture.stop().await;
}

#[tokio::test]
async fn what_is_attached_or_of_another_driver_is_left_alone() {
    let Some(mut fixture) = Fixture::new("attach-barrier", &[]).await else { return };
    fixture.node().await;
    fixture.volume(|_| {}).await;
    for (name, driver) in
        [("attach-done", fixture.options.driver.as_str()), ("attach-foreign", "other")]
    {
        fixture
            .attachment(|attachment| {
                attachment["metadata"]["name"] = json!(name);
                attachment["spec"]["attacher"] = json!(driver);
            })
            .await;
    }
    let done = Fixture::new("attach-done", &[]).await.unwrap();
    done.patch_status(json!({ "attached": true })).await;
    fixture.start();
    fixture.attachment(|_| {}).await;
    fixture.journal.expect(fixture.attach_lines()).await;
    fixture.stop().await;
}
