use serde_json::{Value, json};

use super::lines::{BOUND, SNAPSHOTS, SOURCE};
use crate::journal::DEADLINE;
use crate::snapshots::{Bench, CLASSES};

const DEFAULT: &str = "snapshot.storage.kubernetes.io/is-default-class";

fn default(it: &mut Value) {
    it["metadata"] = json!({ "annotations": { DEFAULT: "true" } });
}

fn classless(it: &mut Value) {
    it["spec"].as_object_mut().unwrap().remove("volumeSnapshotClassName");
}

#[tokio::test]
async fn a_snapshot_without_a_class_gets_the_default() {
    let Some(mut bench) = Bench::new("vs-default").await else { return };
    bench.class(default).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(classless).await;
    bench.start_controller();
    let lines = bench.lines(5).await;
    let prepared = json!({
        "metadata": { "finalizers": [SOURCE, BOUND], "resourceVersion": "*" },
        "spec": { "volumeSnapshotClassName": "vs-default" },
    });
    assert_eq!(lines[0], bench.patched(SNAPSHOTS, &prepared));
    assert_eq!(lines[3], bench.content_line(|_| {}));
    bench.stop().await;
}

#[tokio::test]
async fn without_one_default_there_is_none() {
    for (name, twice, message) in [
        ("vs-nodefault", false, "cannot find default snapshot class"),
        ("vs-defaults", true, "2 default snapshot classes were found"),
    ] {
        let Some(mut bench) = Bench::new(name).await else { return };
        bench
            .class(|it| {
                if twice {
                    default(it);
                }
            })
            .await;
        bench
            .class(|it| {
                if twice {
                    default(it);
                }
                it["metadata"]["name"] = json!(format!("{name}-more"));
            })
            .await;
        bench.bound_claim(|_| {}).await;
        bench.snapshot(classless).await;
        bench.start_controller();
        let message = format!("Failed to set default snapshot class with error {message}");
        bench.expect([bench.told_line(&message, false)]).await;
        bench.expect_events(["SetDefaultSnapshotClassFailed"]).await;
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_class_that_is_missing_is_waited_for() {
    let Some(mut bench) = Bench::new("vs-classless").await else { return };
    bench.controller.backoff.first = DEADLINE * 2;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|_| {}).await;
    bench.start_controller();
    let message = "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io \
                   \"vs-classless\" not found";
    bench.expect([bench.told_line(message, false)]).await;
    bench.expect_events(["GetSnapshotClassFailed"]).await;
    bench.class(|_| {}).await;
    let lines = bench.lines(6).await;
    assert_eq!(lines[1], bench.prepare_line());
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshot_goes_without_its_class() {
    let Some(mut bench) = Bench::new("vs-goes").await else { return };
    bench.class(|_| {}).await;
    bench.snapshot(|it| it["metadata"] = json!({ "finalizers": [SOURCE, BOUND] })).await;
    bench.delete(CLASSES).await;
    bench.delete(&bench.snapshots()).await;
    bench.start_controller();
    // Nobody remembers whether its content was made.
    let content = "GET volumesnapshotcontents/snapcontent-UID -> 404".to_owned();
    bench.expect([content, bench.let_go_line()]).await;
    bench.stop().await;
}
