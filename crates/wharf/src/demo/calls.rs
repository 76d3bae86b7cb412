//! The calls that sidecars and kubelet make in a volume's life, with the fields that the demo
//! needs.

use std::path::Path;

use anyhow::{Context, anyhow};
use tonic::{Request, Response, Status};
use wharf_csi::Driver;
use wharf_proto::csi::{
    self,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    volume_content_source::{SnapshotSource, Type as Source},
    volume_usage::Unit,
};

use super::local::NODE;

/// A registered driver.
pub(super) struct Calls(pub(super) Driver);

impl Calls {
    /// Creates an ext4 volume, empty or from a snapshot, and returns its ID.
    pub(super) async fn create(
        &self,
        name: &str,
        size: i64,
        snapshot: Option<&str>,
    ) -> anyhow::Result<String> {
        let source = snapshot.map(|id| Source::Snapshot(SnapshotSource { snapshot_id: id.into() }));
        let request = csi::CreateVolumeRequest {
            name: name.into(),
            capacity_range: Some(range(size)),
            volume_capabilities: vec![capability()],
            volume_content_source: source.map(|it| csi::VolumeContentSource { r#type: Some(it) }),
            ..Default::default()
        };
        let send = async |it| self.0.controller().create_volume(it).await;
        let volume = self.ask("CreateVolume", request, send).await?.volume;
        Ok(volume.context("CreateVolume answered no volume")?.volume_id)
    }

    /// Attaches a volume to this node.
    pub(super) async fn attach(&self, volume: &str) -> anyhow::Result<()> {
        let request = csi::ControllerPublishVolumeRequest {
            volume_id: volume.into(),
            node_id: NODE.into(),
            volume_capability: Some(capability()),
            ..Default::default()
        };
        let send = async |it| self.0.controller().controller_publish_volume(it).await;
        self.ask("ControllerPublishVolume", request, send).await.map(drop)
    }

    /// Mounts a volume on the node. The driver formats a new volume, and grows the filesystem of an
    /// expanded one.
    pub(super) async fn stage(&self, volume: &str, staging: &Path) -> anyhow::Result<()> {
        let request = csi::NodeStageVolumeRequest {
            volume_id: volume.into(),
            staging_target_path: text(staging),
            volume_capability: Some(capability()),
            ..Default::default()
        };
        let send = async |it| self.0.node().node_stage_volume(it).await;
        self.ask("NodeStageVolume", request, send).await.map(drop)
    }

    /// Mounts a staged volume for a pod.
    pub(super) async fn publish(
        &self,
        volume: &str,
        staging: &Path,
        target: &Path,
    ) -> anyhow::Result<()> {
        let request = csi::NodePublishVolumeRequest {
            volume_id: volume.into(),
            staging_target_path: text(staging),
            target_path: text(target),
            volume_capability: Some(capability()),
            ..Default::default()
        };
        let send = async |it| self.0.node().node_publish_volume(it).await;
        self.ask("NodePublishVolume", request, send).await.map(drop)
    }

    /// Takes a snapshot, and returns its ID.
    pub(super) async fn snapshot(&self, name: &str, volume: &str) -> anyhow::Result<String> {
        let request = csi::CreateSnapshotRequest {
            name: name.into(),
            source_volume_id: volume.into(),
            ..Default::default()
        };
        let send = async |it| self.0.controller().create_snapshot(it).await;
        let snapshot = self.ask("CreateSnapshot", request, send).await?.snapshot;
        Ok(snapshot.context("CreateSnapshot answered no snapshot")?.snapshot_id)
    }

    /// Expands a volume.
    pub(super) async fn expand(&self, volume: &str, size: i64) -> anyhow::Result<()> {
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: volume.into(),
            capacity_range: Some(range(size)),
            volume_capability: Some(capability()),
            ..Default::default()
        };
        let send = async |it| self.0.controller().controller_expand_volume(it).await;
        self.ask("ControllerExpandVolume", request, send).await.map(drop)
    }

    /// The size of the volume's filesystem, in bytes.
    pub(super) async fn total(&self, volume: &str, path: &Path) -> anyhow::Result<i64> {
        let request = csi::NodeGetVolumeStatsRequest {
            volume_id: volume.into(),
            volume_path: text(path),
            ..Default::default()
        };
        let send = async |it| self.0.node().node_get_volume_stats(it).await;
        let usage = self.ask("NodeGetVolumeStats", request, send).await?.usage;
        let bytes = usage.iter().find(|usage| usage.unit == i32::from(Unit::Bytes));
        Ok(bytes.context("NodeGetVolumeStats answered no bytes")?.total)
    }

    /// Unmounts a volume from its pod.
    pub(super) async fn unpublish(&self, volume: &str, target: &Path) -> anyhow::Result<()> {
        let request =
            csi::NodeUnpublishVolumeRequest { volume_id: volume.into(), target_path: text(target) };
        let send = async |it| self.0.node().node_unpublish_volume(it).await;
        self.ask("NodeUnpublishVolume", request, send).await.map(drop)
    }

    /// Unmounts a volume on the node.
    pub(super) async fn unstage(&self, volume: &str, staging: &Path) -> anyhow::Result<()> {
        let request = csi::NodeUnstageVolumeRequest {
            volume_id: volume.into(),
            staging_target_path: text(staging),
        };
        let send = async |it| self.0.node().node_unstage_volume(it).await;
        self.ask("NodeUnstageVolume", request, send).await.map(drop)
    }

    /// Detaches a volume from this node.
    pub(super) async fn detach(&self, volume: &str) -> anyhow::Result<()> {
        let request = csi::ControllerUnpublishVolumeRequest {
            volume_id: volume.into(),
            node_id: NODE.into(),
            ..Default::default()
        };
        let send = async |it| self.0.controller().controller_unpublish_volume(it).await;
        self.ask("ControllerUnpublishVolume", request, send).await.map(drop)
    }

    pub(super) async fn delete(&self, volume: &str) -> anyhow::Result<()> {
        let request = csi::DeleteVolumeRequest { volume_id: volume.into(), ..Default::default() };
        let send = async |it| self.0.controller().delete_volume(it).await;
        self.ask("DeleteVolume", request, send).await.map(drop)
    }

    pub(super) async fn delete_snapshot(&self, snapshot: &str) -> anyhow::Result<()> {
        let request =
            csi::DeleteSnapshotRequest { snapshot_id: snapshot.into(), ..Default::default() };
        let send = async |it| self.0.controller().delete_snapshot(it).await;
        self.ask("DeleteSnapshot", request, send).await.map(drop)
    }

    async fn ask<Q, A>(
        &self,
        rpc: &'static str,
        request: Q,
        send: impl AsyncFnOnce(Request<Q>) -> Result<Response<A>, Status>,
    ) -> anyhow::Result<A> {
        let send = |request| async move { send(request).await };
        let answer = self.0.call_here(rpc, send, request).await;
        answer.map_err(|status| anyhow!("{rpc}: {:?}: {}", status.code(), status.message()))
    }
}

fn capability() -> csi::VolumeCapability {
    let mount = MountVolume { fs_type: "ext4".into(), ..Default::default() };
    csi::VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    }
}

fn range(size: i64) -> csi::CapacityRange {
    csi::CapacityRange { required_bytes: size, limit_bytes: 0 }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
