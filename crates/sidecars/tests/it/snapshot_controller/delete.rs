use http::Method;
use serde_json::json;

use super::lines::{BOUND, IN_USE, SOURCE, TAKEN};
use crate::{
    journal::DEADLINE,
    snapshots::{CONTENTS, Fixture},
};

const CONTENT: &str = "snapcontent-UID";

#[tokio::test]
async fn a_snapshot_goes_after_its_content() {
    let Some(mut fixture) = Fixture::new("vsdel").await else { return };
    fixture.ready(|_| {}).await;
    let content = fixture.content_name().await;
    fixture.delete(&fixture.snapshots()).await;
    let begun = [fixture.word_line(CONTENT), fixture.gone_line(CONTENT)];
    fixture.expect(begun.clone()).await;
    // The snapshotter's last write.
    let path = format!("{CONTENTS}/{content}");
    let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    let released = json!({ "metadata": { "finalizers": null } }).to_string().into_bytes();
    fixture.admin.request::<serde_json::Value>(request.body(released).unwrap()).await.unwrap();
    let [word, gone] = begun;
    fixture.expect([word, gone, fixture.let_go_line()]).await;
    assert!(fixture.get(&fixture.snapshots(), fixture.name).await.is_none());
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_that_is_to_be_kept_stays() {
    let Some(mut fixture) = Fixture::new("vsdel-keep").await else { return };
    fixture.ready(|it| it["deletionPolicy"] = json!("Retain")).await;
    let content = fixture.content_name().await;
    fixture.delete(&fixture.snapshots()).await;
    fixture.expect([fixture.word_line(CONTENT), fixture.let_go_line()]).await;
    let kept = fixture.get(CONTENTS, &content).await.unwrap();
    assert!(kept["metadata"]["deletionTimestamp"].is_null());
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_is_restored_from_waits() {
    let Some(mut fixture) = Fixture::new("vsdel-restore").await else { return };
    fixture.controller.backoff.first = DEADLINE * 2;
    fixture.ready(|it| it["deletionPolicy"] = json!("Retain")).await;
    fixture.stop_controllers().await;
    let source = json!({
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": fixture.name,
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
    fixture.create(&fixture.claims(), "PersistentVolumeClaim", claim).await;
    fixture.delete(&fixture.snapshots()).await;
    fixture.start_controller();
    fixture.expect_events(["SnapshotDeletePending"]).await;
    assert_eq!(fixture.lines(0).await, [""; 0]);
    fixture.patch_status_of(&fixture.claims(), "vsdel-restored", json!({ "phase": "Bound" })).await;
    fixture.expect([fixture.word_line(CONTENT), fixture.let_go_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn what_belongs_to_another_is_not_touched() {
    let Some(mut fixture) = Fixture::new("vsdel-other").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(|it| it["spec"]["volumeSnapshotRef"]["uid"] = json!("other")).await;
    fixture.snapshot(|it| it["metadata"] = json!({ "finalizers": [SOURCE, BOUND] })).await;
    let bound = json!({ "boundVolumeSnapshotContentName": fixture.name, "readyToUse": true });
    fixture.patch_status(&fixture.snapshots(), bound).await;
    fixture.delete(&fixture.snapshots()).await;
    fixture.start_controller();
    fixture.expect([fixture.let_go_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_without_its_snapshot_stays() {
    let Some(mut fixture) = Fixture::new("vsdel-alone").await else { return };
    fixture.content(|_| {}).await;
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|it| it["metadata"] = json!({ "name": "vsdel-beside" })).await;
    fixture.start_controller();
    let lines = fixture.lines(5).await;
    assert!(
        lines.iter().all(|line| !line.contains("volumesnapshotcontents/vsdel-alone")),
        "{lines:#?}"
    );
    assert!(fixture.get(CONTENTS, fixture.name).await.is_some());
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_is_free_when_its_unready_snapshot_goes() {
    let Some(mut fixture) = Fixture::new("vsdel-claim").await else { return };
    fixture.class(|it| it["deletionPolicy"] = json!("Retain")).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|_| {}).await;
    fixture.start_controller();
    fixture.lines(5).await;
    let claim = fixture.get(&fixture.claims(), fixture.name).await.unwrap();
    assert_eq!(claim["metadata"]["finalizers"], json!([IN_USE, TAKEN]));
    fixture.journal.clear();
    fixture.delete(&fixture.snapshots()).await;
    let [get, release] = fixture.claim_lines(&[IN_USE]);
    fixture.expect([fixture.word_line(CONTENT), get, release, fixture.let_go_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_that_cannot_be_deleted_is_tried_again() {
    let Some(mut fixture) = Fixture::new("vsdel-error").await else { return };
    fixture.ready(|_| {}).await;
    fixture.journal.fail_once(Method::DELETE, "volumesnapshotcontents", 500);
    fixture.delete(&fixture.snapshots()).await;
    let (word, gone) = (fixture.word_line(CONTENT), fixture.gone_line(CONTENT));
    fixture.expect([word, format!("{gone} -> 500"), gone]).await;
    fixture.expect_events(["SnapshotContentObjectDeleteError"]).await;
    fixture.stop().await;
}
