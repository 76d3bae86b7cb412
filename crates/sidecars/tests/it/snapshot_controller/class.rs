use serde_json::{Value, json};

use super::lines::{BOUND, SNAPSHOTS, SOURCE};
use crate::{
    journal::DEADLINE,
    snapshots::{CLASSES, Fixture},
};

const DEFAULT: &str = "snapshot.storage.kubernetes.io/is-default-class";

fn default(it: &mut Value) {
    it["metadata"] = json!({ "annotations": { DEFAULT: "true" } });
}

fn classless(it: &mut Value) {
    it["spec"].as_object_mut().unwrap().remove("volumeSnapshotClassName");
}

#[tokio::test]
async fn a_snapshot_without_a_class_gets_the_default() {
    let Some(mut fixture) = Fixture::new("vs-default").await else { return };
    fixture.class(default).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(classless).await;
    fixture.start_controller();
    let lines = fixture.lines(5).await;
    let prepared = json!({
        "metadata": { "finalizers": [SOURCE, BOUND], "resourceVersion": "*" },
        "spec": { "volumeSnapshotClassName": "vs-default" },
    });
    assert_eq!(lines[0], fixture.patched(SNAPSHOTS, &prepared));
    assert_eq!(lines[3], fixture.content_line(|_| {}));
    fixture.stop().await;
}

#[tokio::test]
async fn without_one_default_there_is_none() {
    for (name, twice, message) in [
        ("vs-nodefault", false, "cannot find default snapshot class"),
        ("vs-defaults", true, "2 default snapshot classes were found"),
    ] {
        let Some(mut fixture) = Fixture::new(name).await else { return };
        fixture
            .class(|it| {
                if twice {
                    default(it);
                }
            })
            .await;
        fixture
            .class(|it| {
                if twice {
                    default(it);
                }
                it["metadata"]["name"] = json!(format!("{name}-more"));
            })
            .await;
        fixture.bound_claim(|_| {}).await;
        fixture.snapshot(classless).await;
        fixture.start_controller();
        let message = format!("Failed to set default snapshot class with error {message}");
        fixture.expect([fixture.told_line(&message, false)]).await;
        fixture.expect_events(["SetDefaultSnapshotClassFailed"]).await;
        fixture.stop().await;
    }
}

#[tokio::test]
async fn a_class_that_is_missing_is_waited_for() {
    let Some(mut fixture) = Fixture::new("vs-classless").await else { return };
    fixture.controller.backoff.first = DEADLINE * 2;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|_| {}).await;
    fixture.start_controller();
    let message = "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io \
                   \"vs-classless\" not found";
    fixture.expect([fixture.told_line(message, false)]).await;
    fixture.expect_events(["GetSnapshotClassFailed"]).await;
    fixture.class(|_| {}).await;
    let lines = fixture.lines(6).await;
    assert_eq!(lines[1], fixture.prepare_line());
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_goes_without_its_class() {
    let Some(mut fixture) = Fixture::new("vs-goes").await else { return };
    fixture.class(|_| {}).await;
    fixture.snapshot(|it| it["metadata"] = json!({ "finalizers": [SOURCE, BOUND] })).await;
    fixture.delete(CLASSES).await;
    fixture.delete(&fixture.snapshots()).await;
    fixture.start_controller();
    // No process knows whether its content was created.
    let content = "GET volumesnapshotcontents/snapcontent-UID -> 404".to_owned();
    fixture.expect([content, fixture.let_go_line()]).await;
    fixture.stop().await;
}
