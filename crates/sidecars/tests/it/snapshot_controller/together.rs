//! Both controllers with the local-storage driver.

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::Endpoint;

use crate::{
    journal::DEADLINE,
    local::{create_volume, local_driver},
    snapshots::{CONTENTS, Fixture},
};

/// Waits until an object has the desired state; its changes are in the journal.
async fn until(fixture: &Fixture, path: &str, name: &str, right: impl Fn(Option<&Value>) -> bool) {
    let mut seen = fixture.journal.lines().len();
    while !right(fixture.get(path, name).await.as_ref()) {
        seen = fixture.journal.wait_for(seen + 1).await.len();
    }
}

fn is_ready(object: Option<&Value>) -> bool {
    object.is_some_and(|it| it["status"]["readyToUse"] == true)
}

#[tokio::test]
async fn a_volume_of_the_local_driver_has_snapshots_taken_bound_and_deleted() {
    let Some(mut fixture) = Fixture::new("vs-local").await else { return };
    let folder = fixture.folder().to_owned();
    let (stop, mut serving) = (CancellationToken::new(), JoinSet::new());
    let socket = folder.join("local.sock");
    let endpoint: Endpoint = socket.display().to_string().parse().unwrap();
    let driver = local_driver(&folder, &fixture.snapshotter.driver, "vs-local-id").await;
    let plugin = driver.plugin("1.0.0", true).build().unwrap();
    let stopped = stop.clone();
    serving.spawn(async move { plugin.serve(endpoint, stopped).await.unwrap() });

    fixture.start_snapshotter_for(&socket, DEADLINE);
    fixture.start_controller();
    let volume = create_volume(&socket).await;
    fixture.class(|it| it["deletionPolicy"] = json!("Retain")).await;
    fixture.bound_claim(|it| it["spec"]["csi"]["volumeHandle"] = json!(volume)).await;
    fixture.snapshot(|_| {}).await;
    let snapshots = fixture.snapshots();
    until(&fixture, &snapshots, fixture.name, is_ready).await;
    let content = fixture.content_name().await;
    let taken = fixture.get(CONTENTS, &content).await.unwrap();
    let handle = taken["status"]["snapshotHandle"].as_str().unwrap().to_owned();

    // It is retained without its snapshot, and bound to another one.
    fixture.delete(&snapshots).await;
    until(&fixture, &snapshots, fixture.name, |it| it.is_none()).await;
    assert!(fixture.get(CONTENTS, &content).await.is_some());
    fixture
        .content(|it| {
            it["spec"]["source"] = json!({ "snapshotHandle": handle });
            it["spec"]["volumeSnapshotRef"].as_object_mut().unwrap().remove("uid");
        })
        .await;
    let given = json!({ "volumeSnapshotContentName": fixture.name });
    fixture.snapshot(|it| it["spec"]["source"] = given).await;
    until(&fixture, &snapshots, fixture.name, is_ready).await;

    // With that one it is deleted, in the driver as well.
    fixture.delete(&snapshots).await;
    until(&fixture, &snapshots, fixture.name, |it| it.is_none()).await;
    assert!(fixture.get(CONTENTS, fixture.name).await.is_none());
    let client = wharf_csi::Driver::new(&socket, wharf_csi::DriverOptions::default());
    client.connected(DEADLINE).await.unwrap();
    let request = wharf_proto::csi::ListSnapshotsRequest::default();
    let listed = client.controller().list_snapshots(request).await.unwrap().into_inner();
    assert!(listed.entries.is_empty(), "{listed:?}");
    fixture.stop().await;
    stop.cancel();
    serving.join_next().await.unwrap().unwrap();
}
