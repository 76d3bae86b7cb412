//! The resizer with the local-storage driver.

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::Endpoint;

use super::fixture::{CLASSES, Fixture, VOLUMES};
use crate::{
    journal::DEADLINE,
    local::{create_volume, local_driver},
};

#[tokio::test]
async fn a_volume_of_the_local_driver_grows_and_is_modified() {
    let Some(mut fixture) = Fixture::new("grow-local").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (stop, mut serving) = (CancellationToken::new(), JoinSet::new());
    let socket = folder.path().join("local.sock");
    let endpoint: Endpoint = socket.display().to_string().parse().unwrap();
    let driver = local_driver(folder.path(), &fixture.options.driver, "local-id").await;
    let plugin = driver.plugin("1.0.0", true).build().unwrap();
    let stopped = stop.clone();
    serving.spawn(async move { plugin.serve(endpoint, stopped).await.unwrap() });

    let handle = create_volume(&socket).await;
    let class = json!({
        "metadata": { "name": fixture.name },
        "driverName": fixture.options.driver,
        "parameters": { "riops": "100" },
    });
    fixture.create(CLASSES, "VolumeAttributesClass", class).await;
    let claim = |it: &mut Value| {
        it["spec"]["resources"]["requests"] = json!({ "storage": "128Mi" });
        it["spec"]["volumeMode"] = json!("Block");
    };
    let volume = |it: &mut Value| {
        it["spec"]["capacity"] = json!({ "storage": "64Mi" });
        it["spec"]["volumeMode"] = json!("Block");
        it["spec"]["csi"]["volumeHandle"] = json!(handle);
    };
    fixture.bound(claim, volume, json!({ "capacity": { "storage": "64Mi" } })).await;
    fixture.start_resizer(&socket, DEADLINE).await.unwrap();
    fixture.journal.wait_for(3).await;
    assert_eq!(fixture.status().await["capacity"], json!({ "storage": "128Mi" }));
    let volume = fixture.get(VOLUMES).await.unwrap();
    assert_eq!(volume["spec"]["capacity"], json!({ "storage": "128Mi" }));

    fixture.journal.clear();
    fixture.wish(fixture.name).await;
    fixture.journal.wait_for(3).await;
    assert_eq!(fixture.status().await["currentVolumeAttributesClassName"], fixture.name);
    fixture.stop().await;
    stop.cancel();
    serving.join_next().await.unwrap().unwrap();
}
