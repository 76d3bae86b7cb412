use serde_json::{Value, json};

use super::lines::{BOUND, SNAPSHOTS, SOURCE};
use crate::journal::DEADLINE;
use crate::snapshots::{Bench, CONTENT_FINALIZER, CONTENTS};

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
    let Some(mut bench) = Bench::new("vs-given").await else { return };
    bench.class(|_| {}).await;
    bench.content(given).await;
    bench.snapshot(of_content).await;
    bench.start_controller();
    let bind = json!({
        "metadata": { "finalizers": [CONTENT_FINALIZER], "resourceVersion": "*" },
        "spec": { "volumeSnapshotClassName": "vs-given", "volumeSnapshotRef": { "uid": "UID" } },
    });
    let shown = json!({ "boundVolumeSnapshotContentName": "vs-given", "readyToUse": false });
    bench
        .expect([
            bench.prepare_line(),
            bench.patched("volumesnapshotcontents", &bind),
            bench.patched_status(SNAPSHOTS, &shown),
        ])
        .await;
    let found = json!({ "snapshotHandle": "h", "creationTime": 1_000_000_000, "readyToUse": true });
    bench.patch_status(CONTENTS, found).await;
    let lines = bench.lines(4).await;
    let shown = json!({ "creationTime": "1970-01-01T00:00:01Z", "readyToUse": true });
    assert_eq!(lines[3], bench.patched_status(SNAPSHOTS, &shown));
    bench.expect_events(["SnapshotCreated", "SnapshotReady"]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_content_that_is_missing_is_waited_for() {
    let Some(mut bench) = Bench::new("vs-missing").await else { return };
    bench.controller.backoff.first = DEADLINE * 2;
    bench.class(|_| {}).await;
    bench.snapshot(of_content).await;
    bench.start_controller();
    let held = bench.patched_metadata(SNAPSHOTS, json!({ "finalizers": [SOURCE] }));
    bench.expect([held, bench.told_line("VolumeSnapshotContent is missing", true)]).await;
    bench.expect_events(["SnapshotContentMissing"]).await;
    bench.content(given).await;
    let lines = bench.lines(5).await;
    let held = bench.patched_metadata(SNAPSHOTS, json!({ "finalizers": [SOURCE, BOUND] }));
    assert_eq!(lines[2], held);
    let shown = json!({ "boundVolumeSnapshotContentName": "vs-missing", "error": null });
    assert_eq!(lines[4], bench.patched_status(SNAPSHOTS, &shown));
    bench.stop().await;
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
        let Some(mut bench) = Bench::new(name).await else { return };
        bench.class(|_| {}).await;
        bench
            .content(|it| {
                given(it);
                it["metadata"] = json!({ "finalizers": [CONTENT_FINALIZER] });
                change(it);
            })
            .await;
        bench.snapshot(of_content).await;
        bench.start_controller();
        bench.expect([bench.told_line(message, true)]).await;
        bench.expect_events([reason]).await;
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_ready_snapshot_whose_content_is_gone_is_not_ready() {
    let Some(mut bench) = Bench::new("vs-lost").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|it| it["metadata"] = json!({ "finalizers": [SOURCE] })).await;
    let ready = json!({ "boundVolumeSnapshotContentName": "gone", "readyToUse": true });
    bench.patch_status(&bench.snapshots(), ready).await;
    bench.start_controller();
    let lines = bench.lines(1).await;
    assert_eq!(lines[0], bench.told_line("VolumeSnapshotContent is missing", true));
    bench.expect_events(["SnapshotContentMissing"]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_bound_content_of_others_is_protected() {
    let Some(mut bench) = Bench::new("vs-protect").await else { return };
    bench.content(|it| it["metadata"] = json!({})).await;
    bench.start_controller();
    let path = "/metadata/finalizers";
    let steps = json!([
        { "op": "test", "path": path, "value": null },
        { "op": "add", "path": path, "value": [CONTENT_FINALIZER] },
    ]);
    bench.expect([format!("PATCH volumesnapshotcontents/vs-protect {steps}")]).await;
    bench.stop().await;
}
