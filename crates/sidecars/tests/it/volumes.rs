use std::time::Duration;

use serde_json::json;

use crate::bench::{ATTACHMENTS, Bench, VOLUMES};

fn release_line(bench: &Bench, place: usize) -> String {
    let path = format!("/metadata/finalizers/{place}");
    let steps = json!([
        { "op": "test", "path": path, "value": bench.finalizer() },
        { "op": "remove", "path": path },
    ]);
    format!("PATCH persistentvolumes/{} {steps}", bench.name)
}

#[tokio::test]
async fn a_volume_goes_when_its_last_attachment_has_gone() {
    let Some(mut bench) = Bench::new("volume-last", &[]).await else { return };
    bench.attached().await;
    bench.delete(VOLUMES).await;
    bench.delete(ATTACHMENTS).await;
    let lines = [bench.unpublish_line(), bench.release_line(), release_line(&bench, 1)];
    bench.journal.expect(lines).await;
    let volume = bench.get(VOLUMES).await.unwrap();
    assert_eq!(volume["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_deleted_without_attachments_goes_at_once() {
    let Some(mut bench) = Bench::new("volume-idle", &[]).await else { return };
    let finalizer = bench.finalizer();
    bench.volume(|it| it["metadata"]["finalizers"] = json!([finalizer, "example.com/a"])).await;
    bench.start();
    bench.delete(VOLUMES).await;
    bench.journal.expect([release_line(&bench, 0)]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_whose_release_fails_is_tried_again() {
    let Some(mut bench) = Bench::new("volume-retry", &[]).await else { return };
    let finalizer = bench.finalizer();
    bench.volume(|it| it["metadata"]["finalizers"] = json!([finalizer])).await;
    bench.journal.fail_once(http::Method::PATCH, "persistentvolumes/volume-retry", 500);
    bench.delete(VOLUMES).await;
    bench.start();
    let line = release_line(&bench, 0);
    bench.journal.expect([format!("{line} -> 500"), line]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_goes_when_its_last_attachment_to_another_node_has_gone() {
    let Some(mut bench) = Bench::new("volume-elsewhere", &[]).await else { return };
    bench.options.node = Some(bench.name.to_owned());
    bench.options.resync = Duration::ZERO;
    let finalizer = bench.finalizer();
    bench.node().await;
    bench.volume(|it| it["metadata"]["finalizers"] = json!([finalizer])).await;
    bench.attachment(|it| it["spec"]["nodeName"] = json!("elsewhere")).await;
    bench.delete(VOLUMES).await;
    bench.start();
    // Once this one is attached, the other has been looked at.
    bench.pair("volume-here", |_| {}, |_| {}).await;
    bench.journal.wait_for(4).await;
    bench.journal.clear();
    bench.delete(ATTACHMENTS).await;
    bench.journal.expect([release_line(&bench, 0)]).await;
    bench.stop().await;
}
