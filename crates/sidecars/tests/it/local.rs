//! The attacher with the local-storage driver.

use std::{path::Path, sync::Arc};

use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::Endpoint;
use wharf_driver::{
    config::PoolConfig,
    pools::{Pools, PoolsOptions},
    service::{Driver, Identity},
    state_dir::StateDir,
};
use wharf_proto::csi::{
    CapacityRange, CreateVolumeRequest, VolumeCapability,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};

use crate::{
    fixture::{ATTACHMENTS, Fixture, VOLUME_HANDLE},
    journal::DEADLINE,
};

#[tokio::test]
async fn a_volume_of_the_local_driver_is_attached_and_detached() {
    let Some(mut fixture) = Fixture::new("local", &[]).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (stop, mut serving) = (CancellationToken::new(), JoinSet::new());
    let socket = folder.path().join("local.sock");
    let endpoint: Endpoint = socket.display().to_string().parse().unwrap();
    let driver = local_driver(folder.path(), &fixture.options.driver, "local-id").await;
    let plugin = driver.plugin("1.0.0", true).build().unwrap();
    let stopped = stop.clone();
    serving.spawn(async move { plugin.serve(endpoint, stopped).await.unwrap() });

    fixture.start_attacher(&socket, DEADLINE);
    let handle = create_volume(&socket).await;
    fixture.node().await;
    fixture.volume(|it| it["spec"]["csi"]["volumeHandle"] = json!(handle)).await;
    fixture.attachment(|_| {}).await;
    let lines = fixture.journal.wait_for(3).await;
    let prepare = fixture.prepare_line_noting(json!({ VOLUME_HANDLE: handle }));
    assert_eq!(lines[..2], [fixture.protect_line(), prepare]);
    assert!(lines[2].contains(r#""attached":true"#), "{lines:?}");

    fixture.journal.clear();
    fixture.delete(ATTACHMENTS).await;
    fixture.journal.expect([fixture.release_line()]).await;
    fixture.stop().await;
    stop.cancel();
    serving.join_next().await.unwrap().unwrap();
}

pub(crate) async fn local_driver(folder: &Path, name: &str, node: &str) -> Arc<Driver> {
    let mut config = PoolConfig::in_folder(folder.join("pool"));
    config.settings.floor = Some(0);
    let options = PoolsOptions::on_node(node, folder);
    let (state, id) = (folder.join("state"), name.to_owned());
    let pools = tokio::task::spawn_blocking(move || {
        let state_dir = StateDir::open(&state, &id).unwrap();
        Pools::open(vec![config], state_dir, options).unwrap()
    });
    let identity = Identity { name: name.to_owned(), node: node.to_owned(), attach_limit: 16 };
    Arc::new(Driver::new(identity, pools.await.unwrap()))
}

/// Creates the volume as a provisioner would.
pub(crate) async fn create_volume(socket: &Path) -> String {
    let client = wharf_csi::Driver::new(socket, wharf_csi::DriverOptions::default());
    client.connected(DEADLINE).await.unwrap();
    let capability = VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    };
    let request = CreateVolumeRequest {
        name: "local".to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: 64 << 20, limit_bytes: 0 }),
        volume_capabilities: vec![capability],
        ..CreateVolumeRequest::default()
    };
    let answer = client.controller().create_volume(request).await.unwrap();
    answer.into_inner().volume.unwrap().volume_id
}
