use http::Method;
use serde_json::json;

use super::lines::{BOUND, IN_USE, SOURCE, TAKEN};
use crate::journal::DEADLINE;
use crate::snapshots::{Bench, CONTENTS};

const CONTENT: &str = "snapcontent-UID";

#[tokio::test]
async fn a_snapshot_goes_after_its_content() {
    let Some(mut bench) = Bench::new("vsdel").await else { return };
    bench.ready(|_| {}).await;
    let content = bench.content_name().await;
    bench.delete(&bench.snapshots()).await;
    let begun = [bench.word_line(CONTENT), bench.gone_line(CONTENT)];
    bench.expect(begun.clone()).await;
    // What a snapshotter does at the end.
    let path = format!("{CONTENTS}/{content}");
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    let released = json!({ "metadata": { "finalizers": null } }).to_string().into_bytes();
    bench.admin.request::<serde_json::Value>(request.body(released).unwrap()).await.unwrap();
    let [word, gone] = begun;
    bench.expect([word, gone, bench.let_go_line()]).await;
    assert!(bench.get(&bench.snapshots(), bench.name).await.is_none());
    bench.stop().await;
}

#[tokio::test]
async fn a_content_that_is_to_be_kept_stays() {
    let Some(mut bench) = Bench::new("vsdel-keep").await else { return };
    bench.ready(|it| it["deletionPolicy"] = json!("Retain")).await;
    let content = bench.content_name().await;
    bench.delete(&bench.snapshots()).await;
    bench.expect([bench.word_line(CONTENT), bench.let_go_line()]).await;
    let kept = bench.get(CONTENTS, &content).await.unwrap();
    assert!(kept["metadata"]["deletionTimestamp"].is_null());
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_is_restored_from_waits() {
    let Some(mut bench) = Bench::new("vsdel-restore").await else { return };
    bench.controller.backoff.first = DEADLINE * 2;
    bench.ready(|it| it["deletionPolicy"] = json!("Retain")).await;
    bench.stop_controllers().await;
    let source = json!({
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": bench.name,
    });
    let claim = json!({
        "metadata": { "name": "vsdel-restored" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": { "requests": { "storage": "1Gi" } },
            "dataSource": source,
        },
    });
    bench.create(&bench.claims(), "PersistentVolumeClaim", claim).await;
    bench.delete(&bench.snapshots()).await;
    bench.start_controller();
    bench.expect_events(["SnapshotDeletePending"]).await;
    assert_eq!(bench.lines(0).await, [""; 0]);
    bench.patch_status_of(&bench.claims(), "vsdel-restored", json!({ "phase": "Bound" })).await;
    bench.expect([bench.word_line(CONTENT), bench.let_go_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn what_belongs_to_another_is_not_touched() {
    let Some(mut bench) = Bench::new("vsdel-other").await else { return };
    bench.class(|_| {}).await;
    bench.content(|it| it["spec"]["volumeSnapshotRef"]["uid"] = json!("other")).await;
    bench.snapshot(|it| it["metadata"] = json!({ "finalizers": [SOURCE, BOUND] })).await;
    let bound = json!({ "boundVolumeSnapshotContentName": bench.name, "readyToUse": true });
    bench.patch_status(&bench.snapshots(), bound).await;
    bench.delete(&bench.snapshots()).await;
    bench.start_controller();
    bench.expect([bench.let_go_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_content_without_its_snapshot_stays() {
    let Some(mut bench) = Bench::new("vsdel-alone").await else { return };
    bench.content(|_| {}).await;
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|it| it["metadata"] = json!({ "name": "vsdel-beside" })).await;
    bench.start_controller();
    let lines = bench.lines(5).await;
    assert!(
        lines.iter().all(|line| !line.contains("volumesnapshotcontents/vsdel-alone")),
        "{lines:#?}"
    );
    assert!(bench.get(CONTENTS, bench.name).await.is_some());
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_is_free_when_its_unready_snapshot_goes() {
    let Some(mut bench) = Bench::new("vsdel-claim").await else { return };
    bench.class(|it| it["deletionPolicy"] = json!("Retain")).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|_| {}).await;
    bench.start_controller();
    bench.lines(5).await;
    let claim = bench.get(&bench.claims(), bench.name).await.unwrap();
    assert_eq!(claim["metadata"]["finalizers"], json!([IN_USE, TAKEN]));
    bench.journal.clear();
    bench.delete(&bench.snapshots()).await;
    let [get, release] = bench.claim_lines(&[IN_USE]);
    bench.expect([bench.word_line(CONTENT), get, release, bench.let_go_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_content_that_cannot_be_deleted_is_tried_again() {
    let Some(mut bench) = Bench::new("vsdel-error").await else { return };
    bench.ready(|_| {}).await;
    bench.journal.fail_once(Method::DELETE, "volumesnapshotcontents", 500);
    bench.delete(&bench.snapshots()).await;
    let (word, gone) = (bench.word_line(CONTENT), bench.gone_line(CONTENT));
    bench.expect([word, format!("{gone} -> 500"), gone]).await;
    bench.expect_events(["SnapshotContentObjectDeleteError"]).await;
    bench.stop().await;
}
