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
    let name = bench.bound().await;
    let attachment = json!({
        "metadata": { "name": bench.name },
        "spec": {
            "attacher": bench.options.driver,
            "nodeName": "prov-node",
            "source": { "persistentVolumeName": name },
        },
    });
    bench.create(ATTACHMENTS, "VolumeAttachment", attachment).await;
    bench.set_phase(&name, "Released").await;
    let event = format!(
        "Warning VolumeFailedDelete persistentvolume {name} is still attached to node prov-node"
    );
    bench.journal.event(&event).await;
    assert!(bench.journal.lines().is_empty());
    bench.delete(ATTACHMENTS).await;
    bench.journal.expect(deleted(&name)).await;
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
        let volume = json!({
            "metadata": {
                "name": volume,
                "annotations": { format!("{prefix}-name"): named, format!("{prefix}-namespace"): "default" },
            },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": { "driver": bench.options.driver, "volumeHandle": volume },
            },
        });
        bench.create(VOLUMES, "PersistentVolume", volume).await;
    }
    bench.start();
    bench.set_phase("prov-delsecret", "Released").await;
    let read = "GET namespaces/default/secrets".to_owned();
    // One that was made by hand has no finalizer of ours.
    let [delete, object, _] = deleted("prov-delsecret");
    bench.journal.expect([format!("{read}/prov-delsecret"), delete, object]).await;
    assert_eq!(bench.driver.volumes().last_deleted().secrets["key"], "hush");
    bench.journal.clear();
    bench.set_phase("prov-delsecret-none", "Released").await;
    let [delete, object, _] = deleted("prov-delsecret-none");
    bench.journal.expect([format!("{read}/gone -> 404"), delete, object]).await;
    assert!(bench.driver.volumes().last_deleted().secrets.is_empty());
    bench.stop().await;
}
