use serde_json::json;
use tonic::Status;
use wharf_proto::csi::controller_service_capability::rpc;

use super::fixture::{FINALIZER, Fixture, deleted};
use crate::{
    driver::Answer,
    stage::{ATTACHMENTS, VOLUMES},
};

#[tokio::test]
async fn a_released_volume_is_deleted() {
    let Some(mut fixture) = Fixture::new("prov-delete", &[]).await else { return };
    let name = fixture.bound().await;
    fixture.set_phase(&name, "Released").await;
    fixture.journal.expect(deleted(&name)).await;
    assert!(fixture.driver.volumes().made().is_empty());
    let left = fixture.persistent_volume(&name).await.unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    fixture.stop().await;
}

#[tokio::test]
async fn an_error_of_the_driver_is_told_and_the_volume_stays() {
    let Some(mut fixture) = Fixture::new("prov-undeleted", &[]).await else { return };
    let name = fixture.bound().await;
    fixture.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    fixture.set_phase(&name, "Released").await;
    let [delete, object, release] = deleted(&name);
    let refused = format!("{delete} -> FailedPrecondition");
    fixture.journal.expect([refused, delete, object, release]).await;
    let event = "Warning VolumeFailedDelete rpc error: code = FailedPrecondition desc = in use";
    fixture.journal.event(event).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_is_deleted_only_when_it_is_detached() {
    let capabilities = [rpc::Type::PublishUnpublishVolume];
    let Some(mut fixture) = Fixture::new("prov-attached", &capabilities).await else { return };
    fixture.options.backoff.first = std::time::Duration::from_mins(1);
    // The volume is requested, created, and about to be deleted.
    let states = ["prov-attached-wish", "prov-attached-done", "prov-attached-last"];
    for name in states {
        let attachment = json!({
            "metadata": { "name": name, "finalizers": ["example.com/other"] },
            "spec": {
                "attacher": fixture.options.driver,
                "nodeName": "prov-node",
                "source": { "persistentVolumeName": name },
            },
        });
        fixture.create(ATTACHMENTS, "VolumeAttachment", attachment).await;
        fixture.released(name, |_| {}).await;
    }
    let [_, done, last] = states.map(|name| format!("{ATTACHMENTS}/{name}"));
    for path in [&done, &last] {
        let attached = json!({ "status": { "attached": true } });
        fixture.patch_at(&format!("{path}/status"), attached).await;
    }
    fixture.delete_at(&last).await;
    fixture.start();
    for name in states {
        let event = format!(
            "Warning VolumeFailedDelete persistentvolume {name} is still attached to node prov-node"
        );
        fixture.journal.event(&event).await;
    }
    assert!(fixture.journal.lines().is_empty());
    for name in states {
        let path = format!("{ATTACHMENTS}/{name}");
        fixture.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
        if path != last {
            fixture.delete_at(&path).await;
        }
        assert_eq!(fixture.journal.about(name, name, 3).await, deleted(name));
    }
    fixture.stop().await;
}

#[tokio::test]
async fn the_policy_decides_and_may_change() {
    let Some(mut fixture) = Fixture::new("prov-policy", &[]).await else { return };
    let name = fixture.bound().await;
    let policy = |policy: &str| json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
    let path = format!("{VOLUMES}/{name}");
    let place = "/metadata/finalizers";
    let release = json!([
        { "op": "test", "path": format!("{place}/0"), "value": FINALIZER },
        { "op": "remove", "path": format!("{place}/0") },
    ]);
    fixture.patch_at(&path, policy("Retain")).await;
    fixture.journal.expect([format!("PATCH persistentvolumes/{name} {release}")]).await;
    fixture.journal.clear();
    fixture.patch_at(&path, policy("Delete")).await;
    let protect = json!([
        { "op": "test", "path": place, "value": ["kubernetes.io/pv-protection"] },
        { "op": "add", "path": format!("{place}/-"), "value": FINALIZER },
    ]);
    fixture.journal.expect([format!("PATCH persistentvolumes/{name} {protect}")]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn secrets_of_a_deletion_are_those_that_the_volume_names() {
    let Some(mut fixture) = Fixture::new("prov-delsecret", &[]).await else { return };
    let secret =
        json!({ "metadata": { "name": "prov-delsecret" }, "stringData": { "key": "hush" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    for (volume, named) in [("prov-delsecret", "prov-delsecret"), ("prov-delsecret-none", "gone")] {
        let prefix = "volume.kubernetes.io/provisioner-deletion-secret";
        let annotations =
            json!({ format!("{prefix}-name"): named, format!("{prefix}-namespace"): "default" });
        fixture
            .released(volume, |it| {
                it["metadata"]["annotations"] = annotations;
                // A PersistentVolume that was created by hand lacks our finalizer.
                it["metadata"]["finalizers"] = json!([]);
            })
            .await;
    }
    fixture.start();
    let read = "GET namespaces/default/secrets".to_owned();
    for (volume, read, secret) in [
        ("prov-delsecret", format!("{read}/prov-delsecret"), Some("hush")),
        ("prov-delsecret-none", format!("{read}/gone -> 404"), None),
    ] {
        fixture.journal.line(&read).await;
        let [delete, object, _] = deleted(volume);
        fixture.journal.line(&delete).await;
        fixture.journal.line(&object).await;
        let call = fixture.driver.volumes().deletion_of(volume);
        assert_eq!(call.secrets.get("key").map(String::as_str), secret);
    }
    fixture.stop().await;
}

#[tokio::test]
async fn secrets_of_a_deletion_are_else_those_that_the_class_names() {
    let Some(mut fixture) = Fixture::new("prov-delclass", &[]).await else { return };
    let secret =
        json!({ "metadata": { "name": "prov-delclass" }, "stringData": { "key": "hush" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    let prefix = "csi.storage.k8s.io/provisioner-secret";
    fixture
        .class(|it| {
            it["parameters"] = json!({
                format!("{prefix}-name"): "${pv.name}", format!("{prefix}-namespace"): "${pvc.namespace}",
            });
        })
        .await;
    fixture.start();
    let reference = json!({ "namespace": "default", "name": "claim", "uid": "1-2" });
    // One of them has its secret and the other lacks it; both are deleted.
    for (volume, code, secret) in
        [("prov-delclass", "", Some("hush")), ("prov-delclass-none", " -> 404", None)]
    {
        fixture
            .released(volume, |it| {
                it["spec"]["storageClassName"] = json!(fixture.name);
                it["spec"]["claimRef"] = reference.clone();
            })
            .await;
        let read = format!("GET namespaces/default/secrets/{volume}{code}");
        let [delete, object, release] = deleted(volume);
        fixture.journal.expect([read, delete, object, release]).await;
        let call = fixture.driver.volumes().deletion_of(volume);
        assert_eq!(call.secrets.get("key").map(String::as_str), secret);
        fixture.journal.clear();
    }
    fixture.stop().await;
}
