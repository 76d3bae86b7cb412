use std::time::Duration;

use serde_json::json;

use crate::fixture::{ATTACHMENTS, Fixture, VOLUMES};

fn release_line(fixture: &Fixture, place: usize) -> String {
    let path = format!("/metadata/finalizers/{place}");
    let steps = json!([
        { "op": "test", "path": path, "value": fixture.finalizer() },
        { "op": "remove", "path": path },
    ]);
    format!("PATCH persistentvolumes/{} {steps}", fixture.name)
}

#[tokio::test]
async fn a_volume_goes_when_its_last_attachment_has_gone() {
    let Some(mut fixture) = Fixture::new("volume-last", &[]).await else { return };
    fixture.attached().await;
    fixture.delete(VOLUMES).await;
    fixture.delete(ATTACHMENTS).await;
    let lines = [fixture.unpublish_line(), fixture.release_line(), release_line(&fixture, 1)];
    fixture.journal.expect(lines).await;
    let volume = fixture.get(VOLUMES).await.unwrap();
    assert_eq!(volume["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_deleted_without_attachments_goes_at_once() {
    let Some(mut fixture) = Fixture::new("volume-idle", &[]).await else { return };
    let finalizer = fixture.finalizer();
    fixture.volume(|it| it["metadata"]["finalizers"] = json!([finalizer, "example.com/a"])).await;
    fixture.start();
    fixture.delete(VOLUMES).await;
    fixture.journal.expect([release_line(&fixture, 0)]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_whose_release_fails_is_tried_again() {
    let Some(mut fixture) = Fixture::new("volume-retry", &[]).await else { return };
    let finalizer = fixture.finalizer();
    fixture.volume(|it| it["metadata"]["finalizers"] = json!([finalizer])).await;
    fixture.journal.fail_once(http::Method::PATCH, "persistentvolumes/volume-retry", 500);
    fixture.delete(VOLUMES).await;
    fixture.start();
    let line = release_line(&fixture, 0);
    fixture.journal.expect([format!("{line} -> 500"), line]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_goes_when_its_last_attachment_to_another_node_has_gone() {
    let Some(mut fixture) = Fixture::new("volume-elsewhere", &[]).await else { return };
    fixture.options.node = Some(fixture.name.to_owned());
    fixture.options.resync = Duration::ZERO;
    let finalizer = fixture.finalizer();
    fixture.node().await;
    fixture.volume(|it| it["metadata"]["finalizers"] = json!([finalizer])).await;
    fixture.attachment(|it| it["spec"]["nodeName"] = json!("elsewhere")).await;
    fixture.delete(VOLUMES).await;
    fixture.start();
    // Its attachment shows that the other was processed.
    fixture.pair("volume-here", |_| {}, |_| {}).await;
    fixture.journal.wait_for(4).await;
    fixture.journal.clear();
    fixture.delete(ATTACHMENTS).await;
    fixture.journal.expect([release_line(&fixture, 0)]).await;
    fixture.stop().await;
}
