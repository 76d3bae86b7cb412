//! Both controllers with the local-storage driver.

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::Endpoint;

use crate::journal::DEADLINE;
use crate::local::{create_volume, local_driver};
use crate::snapshots::{Bench, CONTENTS};

/// Waits until an object is as it should be; whatever happens to it shows in the journal.
async fn until(bench: &Bench, path: &str, name: &str, right: impl Fn(Option<&Value>) -> bool) {
    let mut seen = bench.journal.lines().len();
    while !right(bench.get(path, name).await.as_ref()) {
        seen = bench.journal.wait_for(seen + 1).await.len();
    }
}

fn is_ready(object: Option<&Value>) -> bool {
    object.is_some_and(|it| it["status"]["readyToUse"] == true)
}

#[tokio::test]
async fn a_volume_of_the_local_driver_has_snapshots_taken_bound_and_deleted() {
    let Some(mut bench) = Bench::new("vs-local").await else { return };
    let folder = bench.folder().to_owned();
    let (stop, mut serving) = (CancellationToken::new(), JoinSet::new());
    let socket = folder.join("local.sock");
    let endpoint: Endpoint = socket.display().to_string().parse().unwrap();
    let driver = local_driver(&folder, &bench.snapshotter.driver, "vs-local-id").await;
    let plugin = driver.plugin("1.0.0", true).build().unwrap();
    let stopped = stop.clone();
    serving.spawn(async move { plugin.serve(endpoint, stopped).await.unwrap() });

    bench.start_snapshotter_for(&socket, DEADLINE);
    bench.start_controller();
    let volume = create_volume(&socket).await;
    bench.class(|it| it["deletionPolicy"] = json!("Retain")).await;
    bench.bound_claim(|it| it["spec"]["csi"]["volumeHandle"] = json!(volume)).await;
    bench.snapshot(|_| {}).await;
    let snapshots = bench.snapshots();
    until(&bench, &snapshots, bench.name, is_ready).await;
    let content = bench.content_name().await;
    let taken = bench.get(CONTENTS, &content).await.unwrap();
    let handle = taken["status"]["snapshotHandle"].as_str().unwrap().to_owned();

    // It is kept without its snapshot, and used by another one.
    bench.delete(&snapshots).await;
    until(&bench, &snapshots, bench.name, |it| it.is_none()).await;
    assert!(bench.get(CONTENTS, &content).await.is_some());
    bench
        .content(|it| {
            it["spec"]["source"] = json!({ "snapshotHandle": handle });
            it["spec"]["volumeSnapshotRef"].as_object_mut().unwrap().remove("uid");
        })
        .await;
    let given = json!({ "volumeSnapshotContentName": bench.name });
    bench.snapshot(|it| it["spec"]["source"] = given).await;
    until(&bench, &snapshots, bench.name, is_ready).await;

    // And with that it is deleted, in the driver as well.
    bench.delete(&snapshots).await;
    until(&bench, &snapshots, bench.name, |it| it.is_none()).await;
    assert!(bench.get(CONTENTS, bench.name).await.is_none());
    let client = wharf_csi::Driver::new(&socket, wharf_csi::DriverOptions::default());
    client.connected(DEADLINE).await.unwrap();
    let request = wharf_proto::csi::ListSnapshotsRequest::default();
    let listed = client.controller().list_snapshots(request).await.unwrap().into_inner();
    assert!(listed.entries.is_empty(), "{listed:?}");
    bench.stop().await;
    stop.cancel();
    serving.join_next().await.unwrap().unwrap();
}
