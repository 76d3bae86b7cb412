//! Our sidecars with Kubernetes' mock driver, in Go.

use std::process::Command;

use serde_json::{Value, json};
use wharf_testkit::{peers, process::Process};

use crate::{api::PATIENCE, life::Life, program::Program, sidecar::Order, site::Site};

const NODE: &str = "mock-life-node";

#[tokio::test]
async fn a_life_on_the_go_mock_driver() {
    let Some(mock) = peers::binary("mock-csi-driver") else { return };
    let Some(site) = Site::with_snapshots("mock-life").await else { return };
    // For publishing, the mock goes by its driver name.
    let driver = json!({ "name": site.name, "nodeID": site.name });
    let node = json!({ "metadata": { "name": NODE }, "spec": { "drivers": [driver] } });
    site.api.create("/apis/storage.k8s.io/v1/csinodes", "CSINode", node).await;
    let order = site.order(Program::Combined, None);
    let socket = order.folder.join("mock.sock");
    let mut command = Command::new(mock);
    command.arg("--endpoint").arg(&socket).args(["--driver-name", &site.name]);
    let mut driver = Process::start("mock", &command, order.folder).unwrap();
    let is_there = || async { socket.exists().then_some(()) };
    driver.ready(PATIENCE, "the driver's socket", is_there).await.unwrap();
    let mut sidecars = Order { socket: socket.clone(), ..order }.start().unwrap();

    let life = Life::begin(&site, "data").await.moved_to(NODE);
    life.attach().await;
    life.snapshot().await;
    let restored = life.restore().await;
    life.expand().await;
    life.detach().await;
    life.delete_snapshot().await;
    life.end().await;
    restored.end().await;
    sidecars.stop().await;
    let called = std::fs::read_to_string(driver.log()).unwrap();
    let called: Vec<Value> =
        called.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for rpc in [
        "CreateVolume",
        "DeleteVolume",
        "ControllerPublishVolume",
        "ControllerUnpublishVolume",
        "ControllerExpandVolume",
        "CreateSnapshot",
        "DeleteSnapshot",
    ] {
        let method = format!("/csi.v1.Controller/{rpc}");
        let codes = called.iter().filter(|it| it["method"] == *method).map(|it| &it["code"]);
        let codes: Vec<&Value> = codes.collect();
        let count = if rpc.ends_with("teVolume") { 2 } else { 1 };
        assert_eq!(codes, vec!["OK"; count], "{rpc}");
    }
    assert!(site.ledger.journal().is_empty(), "that is another driver");
}
