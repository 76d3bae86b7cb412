use serde_json::{Value, json};

use crate::snapshots::{CONTENTS, Fixture};

/// Creates a content in addition to that of the test.
async fn beside(fixture: &Fixture, name: &str, change: impl FnOnce(&mut Value)) {
    let name = name.to_owned();
    fixture
        .content(|it| {
            it["metadata"]["name"] = json!(name);
            change(it);
        })
        .await;
}

#[tokio::test]
async fn contents_of_others_are_left_alone() {
    let Some(mut fixture) = Fixture::new("snap-others").await else { return };
    fixture.class(|_| {}).await;
    beside(&fixture, "snap-others-driver", |it| it["spec"]["driver"] = json!("other.csi.test"))
        .await;
    beside(&fixture, "snap-others-group", |it| {
        let key = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
        it["metadata"]["annotations"] = json!({ key: "g" });
    })
    .await;
    beside(&fixture, "snap-others-ready", |_| {}).await;
    fixture.patch_status_of(CONTENTS, "snap-others-ready", json!({ "readyToUse": true })).await;
    fixture.content(|_| {}).await;
    fixture.start_snapshotter();
    let taken = fixture.taken_line(true);
    fixture
        .expect([fixture.mark_line(), fixture.create_line(), taken, fixture.unmark_line()])
        .await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshotter_on_a_node_serves_that_node() {
    let Some(mut fixture) = Fixture::new("snap-node").await else { return };
    let label = "snapshot.storage.kubernetes.io/managed-by";
    fixture.class(|_| {}).await;
    beside(&fixture, "snap-node-none", |_| {}).await;
    let other = |it: &mut Value| it["metadata"]["labels"] = json!({ label: "other" });
    beside(&fixture, "snap-node-other", other).await;
    fixture.content(|it| it["metadata"]["labels"] = json!({ label: "here" })).await;
    fixture.snapshotter.node = Some("here".to_owned());
    fixture.start_snapshotter();
    let taken = fixture.taken_line(true);
    fixture
        .expect([fixture.mark_line(), fixture.create_line(), taken, fixture.unmark_line()])
        .await;
    let selector = "labelSelector=snapshot%2Estorage%2Ekubernetes%2Eio%2Fmanaged%2Dby%3Dhere";
    assert!(fixture.journal.has_listed(selector), "snapshots of other nodes were asked for");
    fixture.stop().await;
}
