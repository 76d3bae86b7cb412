use serde_json::json;
use tonic::Status;
use wharf_proto::csi::controller_service_capability::rpc;

use super::bench::{Bench, FINALIZER, deleted};
use crate::driver::Answer;
use crate::stage::{ATTACHMENTS, VOLUMES};

#[tokio::test]
async fn a_released_volume_is_deleted() {
    let Some(mut bench) = Bench::new("prov-delete", &[]).await else { return };
    let name = bench.bound().await;
    bench.set_phase(&name, "Released").await;
    bench.journal.expect(deleted(&name)).await;
    assert!(bench.driver.volumes().made().is_empty());
    let left = bench.persistent_volume(&name).await.unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    bench.stop().await;
}

#[tokio::test]
async fn an_error_of_the_driver_is_told_and_the_volume_stays() {
    let Some(mut bench) = Bench::new("prov-undeleted", &[]).await else { return };
    let name = bench.bound().await;
    bench.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    bench.set_phase(&name, "Released").await;
    let [delete, object, release] = deleted(&name);
    let refused = format!("{delete} -> FailedPrecondition");
    bench.journal.expect([refused, delete, object, release]).await;
    let event = "Warning VolumeFailedDelete rpc error: code = FailedPrecondition desc = in use";
    bench.journal.event(event).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_is_deleted_only_when_it_is_detached() {
    let capabilities = [rpc::Type::PublishUnpublishVolume];
    let Some(mut bench) = Bench::new("prov-attached", &capabilities).await else { return };
    bench.options.backoff.first = std::time::Duration::from_mins(1);
    // Asked for, done, and about to be undone.
    let states = ["prov-attached-wish", "prov-attached-done", "prov-attached-last"];
    for name in states {
        let attachment = json!({
            "metadata": { "name": name, "finalizers": ["example.com/other"] },
            "spec": {
                "attacher": bench.options.driver,
                "nodeName": "prov-node",
                "source": { "persistentVolumeName": name },
            },
        });
        bench.create(ATTACHMENTS, "VolumeAttachment", attachment).await;
        bench.released(name, |_| {}).await;
    }
    let [_, done, last] = states.map(|name| format!("{ATTACHMENTS}/{name}"));
    for path in [&done, &last] {
        let attached = json!({ "status": { "attached": true } });
        bench.patch_at(&format!("{path}/status"), attached).await;
    }
    bench.delete_at(&last).await;
    bench.start();
    for name in states {
        let event = format!(
            "Warning VolumeFailedDelete persistentvolume {name} is still attached to node prov-node"
        );
        bench.journal.event(&event).await;
    }
    assert!(bench.journal.lines().is_empty());
    for name in states {
        let path = format!("{ATTACHMENTS}/{name}");
        bench.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
        if path != last {
            bench.delete_at(&path).await;
        }
        assert_eq!(bench.journal.about(name, name, 3).await, deleted(name));
    }
    bench.stop().await;
}

#[tokio::test]
async fn the_policy_decides_and_may_change() {
    let Some(mut bench) = Bench::new("prov-policy", &[]).await else { return };
    let name = bench.bound().await;
    let policy = |policy: &str| json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
    let path = format!("{VOLUMES}/{name}");
    let place = "/metadata/finalizers";
    let release = json!([
        { "op": "test", "path": format!("{place}/0"), "value": FINALIZER },
        { "op": "remove", "path": format!("{place}/0") },
    ]);
    bench.patch_at(&path, policy("Retain")).await;
    bench.journal.expect([format!("PATCH persistentvolumes/{name} {release}")]).await;
    bench.journal.clear();
    bench.patch_at(&path, policy("Delete")).await;
    let protect = json!([
        { "op": "test", "path": place, "value": ["kubernetes.io/pv-protection"] },
        { "op": "add", "path": format!("{place}/-"), "value": FINALIZER },
    ]);
    bench.journal.expect([format!("PATCH persistentvolumes/{name} {protect}")]).await;
    bench.stop().await;
}

#[tokio::test]
async fn secrets_of_a_deletion_are_those_that_the_volume_names() {
    let Some(mut bench) = Bench::new("prov-delsecret", &[]).await else { return };
    let secret =
        json!({ "metadata": { "name": "prov-delsecret" }, "stringData": { "key": "hush" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    for (volume, named) in [("prov-delsecret", "prov-delsecret"), ("prov-delsecret-none", "gone")] {
        let prefix = "volume.kubernetes.io/provisioner-deletion-secret";
        let annotations =
            json!({ format!("{prefix}-name"): named, format!("{prefix}-namespace"): "default" });
        bench
            .released(volume, |it| {
                it["metadata"]["annotations"] = annotations;
                // One that was made by hand has no finalizer of ours.
                it["metadata"]["finalizers"] = json!([]);
            })
            .await;
    }
    bench.start();
    let read = "GET namespaces/default/secrets".to_owned();
    for (volume, read, secret) in [
        ("prov-delsecret", format!("{read}/prov-delsecret"), Some("hush")),
        ("prov-delsecret-none", format!("{read}/gone -> 404"), None),
    ] {
        bench.journal.line(&read).await;
        let [delete, object, _] = deleted(volume);
        bench.journal.line(&delete).await;
        bench.journal.line(&object).await;
        let call = bench.driver.volumes().deletion_of(volume);
        assert_eq!(call.secrets.get("key").map(String::as_str), secret);
    }
    bench.stop().await;
}

#[tokio::test]
async fn secrets_of_a_deletion_are_else_those_that_the_class_names() {
    let Some(mut bench) = Bench::new("prov-delclass", &[]).await else { return };
    let secret =
        json!({ "metadata": { "name": "prov-delclass" }, "stringData": { "key": "hush" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    let prefix = "csi.storage.k8s.io/provisioner-secret";
    bench
        .class(|it| {
            it["parameters"] = json!({
                format!("{prefix}-name"): "${pv.name}", format!("{prefix}-namespace"): "${pvc.namespace}",
            });
        })
        .await;
    bench.start();
    let reference = json!({ "namespace": "default", "name": "claim", "uid": "1-2" });
    // Of one the secret is there, of the other it is not, and that keeps nothing from going.
    for (volume, code, secret) in
        [("prov-delclass", "", Some("hush")), ("prov-delclass-none", " -> 404", None)]
    {
        bench
            .released(volume, |it| {
                it["spec"]["storageClassName"] = json!(bench.name);
                it["spec"]["claimRef"] = reference.clone();
            })
            .await;
        let read = format!("GET namespaces/default/secrets/{volume}{code}");
        let [delete, object, release] = deleted(volume);
        bench.journal.expect([read, delete, object, release]).await;
        let call = bench.driver.volumes().deletion_of(volume);
        assert_eq!(call.secrets.get("key").map(String::as_str), secret);
        bench.journal.clear();
    }
    bench.stop().await;
}
