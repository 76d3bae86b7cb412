use serde_json::{Value, json};

use super::lines::{BOUND, SNAPSHOTS, SOURCE};
use crate::{
    journal::DEADLINE,
    snapshots::{CONTENT_FINALIZER, CONTENTS, Fixture},
};

fn given(it: &mut Value) {
    it["spec"]["source"] = json!({ "snapshotHandle": "h" });
    it["spec"]["volumeSnapshotRef"].as_object_mut().unwrap().remove("uid");
    it["spec"].as_object_mut().unwrap().remove("volumeSnapshotClassName");
    it["metadata"] = json!({});
}

fn of_content(it: &mut Value) {
    let name = it["spec"]["volumeSnapshotClassName"].clone();
    it["spec"]["source"] = json!({ "volumeSnapshotContentName": name });
}

#[tokio::test]
async fn a_content_that_is_there_is_bound() {
    let Some(mut fixture) = Fixture::new("vs-given").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(given).await;
    fixture.snapshot(of_content).await;
    fixture.start_controller();
    let bind = json!({
        "metadata": { "finalizers": [CONTENT_FINALIZER], "resourceVersion": "*" },
        "spec": { "volumeSnapshotClassName": "vs-given", "volumeSnapshotRef": { "uid": "UID" } },
    });
    let shown = json!({ "boundVolumeSnapshotContentName": "vs-given", "readyToUse": false });
    fixture
        .expect([
            fixture.prepare_line(),
            fixture.patched("volumesnapshotcontents", &bind),
            fixture.patched_status(SNAPSHOTS, &shown),
        ])
        .await;
    let found = json!({ "snapshotHandle": "h", "creationTime": 1_000_000_000, "readyToUse": true });
    fixture.patch_status(CONTENTS, found).await;
    let lines = fixture.lines(4).await;
    let shown = json!({ "creationTime": "1970-01-01T00:00:01Z", "readyToUse": true });
    assert_eq!(lines[3], fixture.patched_status(SNAPSHOTS, &shown));
    fixture.expect_events(["SnapshotCreated", "SnapshotReady"]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_that_is_missing_is_waited_for() {
    let Some(mut fixture) = Fixture::new("vs-missing").await else { return };
    fixture.controller.backoff.first = DEADLINE * 2;
    fixture.class(|_| {}).await;
    fixture.snapshot(of_content).await;
    fixture.start_controller();
    let held = fixture.patched_metadata(SNAPSHOTS, json!({ "finalizers": [SOURCE] }));
    fixture.expect([held, fixture.told_line("VolumeSnapshotContent is missing", true)]).await;
    fixture.expect_events(["SnapshotContentMissing"]).await;
    fixture.content(given).await;
    let lines = fixture.lines(5).await;
    let held = fixture.patched_metadata(SNAPSHOTS, json!({ "finalizers": [SOURCE, BOUND] }));
    assert_eq!(lines[2], held);
    let shown = json!({ "boundVolumeSnapshotContentName": "vs-missing", "error": null });
    assert_eq!(lines[4], fixture.patched_status(SNAPSHOTS, &shown));
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_of_another_is_refused() {
    for (name, reason, message, change) in [
        (
            "vs-other",
            "SnapshotContentMisbound",
            "VolumeSnapshotContent [vs-other] is bound to a different snapshot",
            (|it| it["spec"]["volumeSnapshotRef"]["uid"] = json!("other")) as fn(&mut Value),
        ),
        (
            "vs-taken",
            "SnapshotContentMismatch",
            "VolumeSnapshotContent is dynamically provisioned while expecting a pre-provisioned one",
            |it| it["spec"]["source"] = json!({ "volumeHandle": "v" }),
        ),
    ] {
        let Some(mut fixture) = Fixture::new(name).await else { return };
        fixture.class(|_| {}).await;
        fixture
            .content(|it| {
                given(it);
                it["metadata"] = json!({ "finalizers": [CONTENT_FINALIZER] });
                change(it);
            })
            .await;
        fixture.snapshot(of_content).await;
        fixture.start_controller();
        fixture.expect([fixture.told_line(message, true)]).await;
        fixture.expect_events([reason]).await;
        fixture.stop().await;
    }
}

#[tokio::test]
async fn a_ready_snapshot_whose_content_is_gone_is_not_ready() {
    let Some(mut fixture) = Fixture::new("vs-lost").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|it| it["metadata"] = json!({ "finalizers": [SOURCE] })).await;
    let ready = json!({ "boundVolumeSnapshotContentName": "gone", "readyToUse": true });
    fixture.patch_status(&fixture.snapshots(), ready).await;
    fixture.start_controller();
    let lines = fixture.lines(1).await;
    assert_eq!(lines[0], fixture.told_line("VolumeSnapshotContent is missing", true));
    fixture.expect_events(["SnapshotContentMissing"]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_bound_content_of_others_is_protected() {
    let Some(mut fixture) = Fixture::new("vs-protect").await else { return };
    fixture.content(|it| it["metadata"] = json!({})).await;
    fixture.start_controller();
    let path = "/metadata/finalizers";
    let steps = json!([
        { "op": "test", "path": path, "value": null },
        { "op": "add", "path": path, "value": [CONTENT_FINALIZER] },
    ]);
    fixture.expect([format!("PATCH volumesnapshotcontents/vs-protect {steps}")]).await;
    fixture.stop().await;
}
