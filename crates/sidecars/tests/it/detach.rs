use serde_json::json;
use tonic::Status;

use crate::bench::{ATTACHMENTS, Bench, NODES, VOLUMES};
use crate::driver::Answer;

#[tokio::test]
async fn a_volume_is_detached_before_its_attachment_goes() {
    let Some(mut bench) = Bench::new("detach-steps", &[]).await else { return };
    bench.attached().await;
    bench.delete(ATTACHMENTS).await;
    bench.journal.expect([bench.unpublish_line(), bench.release_line()]).await;
    assert_eq!(bench.get(ATTACHMENTS).await, None);
    assert_eq!(bench.driver.attached("detach-steps-handle", "detach-steps-id"), None);
    bench.stop().await;
}

#[tokio::test]
async fn an_attachment_that_others_hold_is_marked_as_detached() {
    let Some(mut bench) = Bench::new("detach-held", &[]).await else { return };
    bench.attached().await;
    let finalizers = json!([bench.finalizer(), "example.com/other"]);
    bench.patch(ATTACHMENTS, json!({ "metadata": { "finalizers": finalizers } })).await;
    bench.delete(ATTACHMENTS).await;
    let metadata = json!({ "finalizers": ["example.com/other"], "resourceVersion": "*" });
    let release =
        format!("PATCH volumeattachments/detach-held {}", json!({ "metadata": metadata }));
    let detached = bench.status_line(&json!({
        "attached": false, "attachmentMetadata": null, "detachError": null,
    }));
    bench.journal.expect([bench.unpublish_line(), release, detached]).await;
    let status = bench.get(ATTACHMENTS).await.unwrap()["status"].clone();
    assert_eq!(status, json!({ "attached": false }));
    bench.patch(ATTACHMENTS, json!({ "metadata": { "finalizers": null } })).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_detach_that_fails_is_tried_again() {
    let Some(mut bench) = Bench::new("detach-error", &[]).await else { return };
    bench.attached().await;
    bench.driver.answer(Answer::Error(Status::internal("stuck")));
    bench.delete(ATTACHMENTS).await;
    let failed = format!("{} -> Internal", bench.unpublish_line());
    let error = bench.detach_error_line("rpc error: code = Internal desc = stuck");
    let rest = [bench.unpublish_line(), bench.release_line()];
    let [unpublish, release] = rest;
    bench.journal.expect([failed, error, unpublish, release]).await;
    assert_eq!(bench.get(ATTACHMENTS).await, None);
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_is_detached_from_a_node_that_is_gone() {
    let Some(mut bench) = Bench::new("detach-gone", &[]).await else { return };
    bench.attached().await;
    bench.delete(NODES).await;
    bench.delete(ATTACHMENTS).await;
    bench.journal.expect([bench.unpublish_line(), bench.release_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_whose_node_nobody_remembers_stays() {
    let Some(mut bench) = Bench::new("detach-lost", &[]).await else { return };
    bench.options.backoff.first = std::time::Duration::from_mins(1);
    bench.volume(|_| {}).await;
    let finalizer = bench.finalizer();
    bench.attachment(|it| it["metadata"]["finalizers"] = json!([finalizer])).await;
    bench.delete(ATTACHMENTS).await;
    bench.start();
    let message = "csinode.storage.k8s.io \"detach-lost\" not found";
    bench.journal.expect([bench.detach_error_line(message)]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_that_may_have_been_attached_is_detached() {
    let Some(mut bench) = Bench::new("detach-maybe", &[]).await else { return };
    bench.node().await;
    bench.volume(|_| {}).await;
    let finalizer = bench.finalizer();
    bench.attachment(|it| it["metadata"]["finalizers"] = json!([finalizer])).await;
    bench.delete(ATTACHMENTS).await;
    bench.start();
    bench.journal.expect([bench.unpublish_line(), bench.release_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_is_detached_from_the_node_that_it_was_attached_to() {
    let Some(mut bench) = Bench::new("detach-remade", &[]).await else { return };
    bench.attached().await;
    // The node is made again under its name: the driver knows another instance.
    bench.delete(NODES).await;
    let driver = json!({ "name": bench.options.driver, "nodeID": "another-instance" });
    let node = json!({ "metadata": { "name": bench.name }, "spec": { "drivers": [driver] } });
    bench.create(NODES, "CSINode", node).await;
    // An attach to the new instance shows that the attacher knows it.
    bench.pair("remade-barrier", |_| {}, |_| {}).await;
    bench.journal.line("ControllerPublishVolume remade-barrier-handle another-instance").await;
    bench.journal.about("remade-barrier", "", 4).await;
    bench.journal.clear();
    bench.delete(ATTACHMENTS).await;
    bench.journal.expect([bench.unpublish_line(), bench.release_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_is_detached_although_its_persistent_volume_and_its_node_are_gone() {
    let Some(mut bench) = Bench::new("detach-orphan", &[]).await else { return };
    let secret = json!({ "metadata": { "name": bench.name }, "stringData": { "key": "hush" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    bench.node().await;
    let reference = json!({ "name": bench.name, "namespace": "default" });
    bench.volume(|it| it["spec"]["csi"]["controllerPublishSecretRef"] = reference).await;
    bench.attachment(|_| {}).await;
    bench.start();
    bench.journal.line(&bench.attached_line()).await;
    bench.delete(NODES).await;
    bench.patch(VOLUMES, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete(VOLUMES).await;
    // The attacher knows that the volume is gone once it refuses to attach it elsewhere.
    bench.attachment(|it| it["metadata"]["name"] = json!("orphan-barrier")).await;
    bench.journal.about("orphan-barrier", "", 1).await;
    bench.delete_at(&format!("{ATTACHMENTS}/orphan-barrier")).await;
    bench.journal.clear();
    bench.delete(ATTACHMENTS).await;
    bench.journal.line(&bench.unpublish_line()).await;
    bench.journal.line(&bench.release_line()).await;
    assert_eq!(bench.driver.last_detach().secrets["key"], "hush");
    bench.stop().await;
}
