//! A CSI client, like that of an orchestrator.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use wharf_csi::{Driver, DriverOptions};
use wharf_proto::csi::{
    self,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};

use super::rig::Rig;

/// One connection to a driver.
#[derive(Clone)]
pub(super) struct Client {
    driver: Driver,
}

/// The access mode of a volume.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// As a block device.
    Block,
    /// With an ext4 filesystem.
    Mount,
}

/// A volume at its target path.
pub(super) struct Published {
    pub(super) id: String,
    pub(super) target: PathBuf,
    staging: PathBuf,
}

/// One call with a deadline; the services' clients are made per call and share the connection.
macro_rules! call {
    ($driver:expr, $service:ident, $rpc:ident, $request:expr) => {{
        let mut service = $driver.$service();
        let send = |request| async move { service.$rpc(request).await };
        $driver.call(stringify!($rpc), send, $request).await.context(stringify!($rpc))
    }};
}

impl Client {
    pub(super) fn new(socket: &Path) -> Self {
        Self { driver: Driver::new(socket, DriverOptions::default()) }
    }

    /// Whether the driver answers that it is ready.
    pub(super) async fn ready(&self) -> bool {
        self.driver.probe().await.unwrap_or(false)
    }

    /// Creates a volume of `size` bytes.
    pub(super) async fn create(
        &self,
        name: &str,
        size: u64,
        access: Access,
        thin: bool,
    ) -> Result<String> {
        let required_bytes = i64::try_from(size).context("size of a volume")?;
        let request = csi::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::CapacityRange { required_bytes, limit_bytes: 0 }),
            volume_capabilities: vec![capability(access)],
            parameters: BTreeMap::from([("thin".to_owned(), thin.to_string())])
                .into_iter()
                .collect(),
            ..Default::default()
        };
        let answer = call!(self.driver, controller, create_volume, request)?;
        Ok(answer.volume.context("CreateVolume gave no volume")?.volume_id)
    }

    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        let request = csi::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        call!(self.driver, controller, delete_volume, request).map(drop)
    }

    /// Takes a snapshot of a volume.
    pub(super) async fn snapshot(&self, volume: &str, name: &str) -> Result<String> {
        let request = csi::CreateSnapshotRequest {
            source_volume_id: volume.to_owned(),
            name: name.to_owned(),
            ..Default::default()
        };
        let answer = call!(self.driver, controller, create_snapshot, request)?;
        Ok(answer.snapshot.context("CreateSnapshot gave no snapshot")?.snapshot_id)
    }

    pub(super) async fn delete_snapshot(&self, id: &str) -> Result<()> {
        let request =
            csi::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        call!(self.driver, controller, delete_snapshot, request).map(drop)
    }

    /// Creates, stages and publishes a volume.
    pub(super) async fn publish(
        &self,
        rig: &Rig,
        name: &str,
        size: u64,
        access: Access,
    ) -> Result<Published> {
        self.publish_in(&rig.path("stage"), &rig.path("pods"), name, size, access).await
    }

    /// Creates, stages and publishes a volume, at paths in these folders.
    pub(super) async fn publish_in(
        &self,
        stage: &Path,
        pods: &Path,
        name: &str,
        size: u64,
        access: Access,
    ) -> Result<Published> {
        let id = self.create(name, size, access, false).await?;
        let (staging, target) = (stage.join(name), pods.join(name));
        std::fs::create_dir_all(&staging)?;
        let request = csi::NodeStageVolumeRequest {
            volume_id: id.clone(),
            staging_target_path: text(&staging),
            volume_capability: Some(capability(access)),
            ..Default::default()
        };
        call!(self.driver, node, node_stage_volume, request)?;
        let volume = Published { id, target, staging };
        self.publish_again(&volume, access).await?;
        Ok(volume)
    }

    /// Publishes a staged volume.
    pub(super) async fn publish_again(&self, volume: &Published, access: Access) -> Result<()> {
        let request = csi::NodePublishVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: text(&volume.staging),
            target_path: text(&volume.target),
            volume_capability: Some(capability(access)),
            ..Default::default()
        };
        call!(self.driver, node, node_publish_volume, request).map(drop)
    }

    pub(super) async fn unpublish(&self, volume: &Published) -> Result<()> {
        let request = csi::NodeUnpublishVolumeRequest {
            volume_id: volume.id.clone(),
            target_path: text(&volume.target),
        };
        call!(self.driver, node, node_unpublish_volume, request).map(drop)
    }

    pub(super) async fn stats(&self, volume: &Published) -> Result<()> {
        let request = csi::NodeGetVolumeStatsRequest {
            volume_id: volume.id.clone(),
            volume_path: text(&volume.target),
            ..Default::default()
        };
        call!(self.driver, node, node_get_volume_stats, request).map(drop)
    }

    /// Unpublishes, unstages and deletes a volume.
    pub(super) async fn discard(&self, volume: Published) -> Result<()> {
        self.unpublish(&volume).await?;
        let request = csi::NodeUnstageVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: text(&volume.staging),
        };
        call!(self.driver, node, node_unstage_volume, request)?;
        self.delete(&volume.id).await
    }
}

fn capability(access: Access) -> csi::VolumeCapability {
    let access_type = match access {
        Access::Block => AccessType::Block(BlockVolume {}),
        Access::Mount => {
            AccessType::Mount(MountVolume { fs_type: "ext4".to_owned(), ..Default::default() })
        }
    };
    csi::VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
