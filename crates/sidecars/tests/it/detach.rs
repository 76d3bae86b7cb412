use serde_json::json;
use tonic::Status;

use crate::{
    driver::Answer,
    fixture::{ATTACHMENTS, Fixture, NODES, VOLUMES},
};

#[tokio::test]
async fn a_volume_is_detached_before_its_attachment_goes() {
    let Some(mut fixture) = Fixture::new("detach-steps", &[]).await else { return };
    fixture.attached().await;
    fixture.delete(ATTACHMENTS).await;
    fixture.journal.expect([fixture.unpublish_line(), fixture.release_line()]).await;
    assert_eq!(fixture.get(ATTACHMENTS).await, None);
    assert_eq!(fixture.driver.attached("detach-steps-handle", "detach-steps-id"), None);
    fixture.stop().await;
}

#[tokio::test]
async fn an_attachment_that_others_hold_is_marked_as_detached() {
    let Some(mut fixture) = Fixture::new("detach-held", &[]).await else { return };
    fixture.attached().await;
    let finalizers = json!([fixture.finalizer(), "example.com/other"]);
    fixture.patch(ATTACHMENTS, json!({ "metadata": { "finalizers": finalizers } })).await;
    fixture.delete(ATTACHMENTS).await;
    let metadata = json!({ "finalizers": ["example.com/other"], "resourceVersion": "*" });
    let release =
        format!("PATCH volumeattachments/detach-held {}", json!({ "metadata": metadata }));
    let detached = fixture.status_line(&json!({
        "attached": false, "attachmentMetadata": null, "detachError": null,
    }));
    fixture.journal.expect([fixture.unpublish_line(), release, detached]).await;
    let status = fixture.get(ATTACHMENTS).await.unwrap()["status"].clone();
    assert_eq!(status, json!({ "attached": false }));
    fixture.patch(ATTACHMENTS, json!({ "metadata": { "finalizers": null } })).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_detach_that_fails_is_tried_again() {
    let Some(mut fixture) = Fixture::new("detach-error", &[]).await else { return };
    fixture.attached().await;
    fixture.driver.answer(Answer::Error(Status::internal("stuck")));
    fixture.delete(ATTACHMENTS).await;
    let failed = format!("{} -> Internal", fixture.unpublish_line());
    let error = fixture.detach_error_line("rpc error: code = Internal desc = stuck");
    let rest = [fixture.unpublish_line(), fixture.release_line()];
    let [unpublish, release] = rest;
    fixture.journal.expect([failed, error, unpublish, release]).await;
    assert_eq!(fixture.get(ATTACHMENTS).await, None);
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_is_detached_from_a_node_that_is_gone() {
    let Some(mut fixture) = Fixture::new("detach-gone", &[]).await else { return };
    fixture.attached().await;
    fixture.delete(NODES).await;
    fixture.delete(ATTACHMENTS).await;
    fixture.journal.expect([fixture.unpublish_line(), fixture.release_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_whose_node_nobody_remembers_stays() {
    let Some(mut fixture) = Fixture::new("detach-lost", &[]).await else { return };
    fixture.options.backoff.first = std::time::Duration::from_mins(1);
    fixture.volume(|_| {}).await;
    let finalizer = fixture.finalizer();
    fixture.attachment(|it| it["metadata"]["finalizers"] = json!([finalizer])).await;
    fixture.delete(ATTACHMENTS).await;
    fixture.start();
    let message = "csinode.storage.k8s.io \"detach-lost\" not found";
    fixture.journal.expect([fixture.detach_error_line(message)]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_that_may_have_been_attached_is_detached() {
    let Some(mut fixture) = Fixture::new("detach-maybe", &[]).await else { return };
    fixture.node().await;
    fixture.volume(|_| {}).await;
    let finalizer = fixture.finalizer();
    fixture.attachment(|it| it["metadata"]["finalizers"] = json!([finalizer])).await;
    fixture.delete(ATTACHMENTS).await;
    fixture.start();
    fixture.journal.expect([fixture.unpublish_line(), fixture.release_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_is_detached_from_the_node_that_it_was_attached_to() {
    let Some(mut fixture) = Fixture::new("detach-remade", &[]).await else { return };
    fixture.attached().await;
    // The node is created again under its name, with another node ID.
    fixture.delete(NODES).await;
    let driver = json!({ "name": fixture.options.driver, "nodeID": "another-instance" });
    let node = json!({ "metadata": { "name": fixture.name }, "spec": { "drivers": [driver] } });
    fixture.create(NODES, "CSINode", node).await;
    // An attachment to the new node ID shows that the attacher has seen it.
    fixture.pair("remade-barrier", |_| {}, |_| {}).await;
    fixture.journal.line("ControllerPublishVolume remade-barrier-handle another-instance").await;
    fixture.journal.about("remade-barrier", "", 4).await;
    fixture.journal.clear();
    fixture.delete(ATTACHMENTS).await;
    fixture.journal.expect([fixture.unpublish_line(), fixture.release_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_is_detached_although_its_persistent_volume_and_its_node_are_gone() {
    let Some(mut fixture) = Fixture::new("detach-orphan", &[]).await else { return };
    let secret = json!({ "metadata": { "name": fixture.name }, "stringData": { "key": "hush" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    fixture.node().await;
    let reference = json!({ "name": fixture.name, "namespace": "default" });
    fixture.volume(|it| it["spec"]["csi"]["controllerPublishSecretRef"] = reference).await;
    fixture.attachment(|_| {}).await;
    fixture.start();
    fixture.journal.line(&fixture.attached_line()).await;
    fixture.delete(NODES).await;
    fixture.patch(VOLUMES, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete(VOLUMES).await;
    // The attacher has seen the deletion of the volume once it refuses to attach it elsewhere.
    fixture.attachment(|it| it["metadata"]["name"] = json!("orphan-barrier")).await;
    fixture.journal.about("orphan-barrier", "", 1).await;
    fixture.delete_at(&format!("{ATTACHMENTS}/orphan-barrier")).await;
    fixture.journal.clear();
    fixture.delete(ATTACHMENTS).await;
    fixture.journal.line(&fixture.unpublish_line()).await;
    fixture.journal.line(&fixture.release_line()).await;
    assert_eq!(fixture.driver.last_detach().secrets["key"], "hush");
    fixture.stop().await;
}
