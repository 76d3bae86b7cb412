use serde_json::{Value, json};

use crate::snapshots::{Bench, CONTENTS};

/// A content beside that of the test.
async fn beside(bench: &Bench, name: &str, change: impl FnOnce(&mut Value)) {
    let name = name.to_owned();
    bench
        .content(|it| {
            it["metadata"]["name"] = json!(name);
            change(it);
        })
        .await;
}

#[tokio::test]
async fn contents_of_others_are_left_alone() {
    let Some(mut bench) = Bench::new("snap-others").await else { return };
    bench.class(|_| {}).await;
    beside(&bench, "snap-others-driver", |it| it["spec"]["driver"] = json!("other.csi.test")).await;
    beside(&bench, "snap-others-group", |it| {
        let key = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
        it["metadata"]["annotations"] = json!({ key: "g" });
    })
    .await;
    beside(&bench, "snap-others-ready", |_| {}).await;
    bench.patch_status_of(CONTENTS, "snap-others-ready", json!({ "readyToUse": true })).await;
    bench.content(|_| {}).await;
    bench.start_snapshotter();
    let taken = bench.taken_line(true);
    bench.expect([bench.mark_line(), bench.create_line(), taken, bench.unmark_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshotter_on_a_node_serves_that_node() {
    let Some(mut bench) = Bench::new("snap-node").await else { return };
    let label = "snapshot.storage.kubernetes.io/managed-by";
    bench.class(|_| {}).await;
    beside(&bench, "snap-node-none", |_| {}).await;
    let other = |it: &mut Value| it["metadata"]["labels"] = json!({ label: "other" });
    beside(&bench, "snap-node-other", other).await;
    bench.content(|it| it["metadata"]["labels"] = json!({ label: "here" })).await;
    bench.snapshotter.node = Some("here".to_owned());
    bench.start_snapshotter();
    let taken = bench.taken_line(true);
    bench.expect([bench.mark_line(), bench.create_line(), taken, bench.unmark_line()]).await;
    let selector = "labelSelector=snapshot%2Estorage%2Ekubernetes%2Eio%2Fmanaged%2Dby%3Dhere";
    assert!(bench.journal.has_listed(selector), "snapshots of other nodes were asked for");
    bench.stop().await;
}
