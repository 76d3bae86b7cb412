//! The CSI calls that kubelet and sidecars make.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use tonic::Status;
use wharf_csi::{Driver, DriverOptions};
use wharf_proto::csi::{
    self,
    controller_client::ControllerClient,
    group_controller_client::GroupControllerClient,
    node_client::NodeClient,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};
use wharf_uds::{Channel, ChannelOptions};

use crate::bench::{Bench, NODE};

/// No call of these tests takes longer.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    channel: Channel,
}

/// How a volume is used, and where.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) id: String,
    pub(crate) capability: csi::VolumeCapability,
    pub(crate) staging: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
    pub(crate) context: BTreeMap<String, String>,
}

impl Usage {
    /// The volume `id` at paths that are named after `place`.
    pub(crate) fn new(
        bench: &Bench,
        place: &str,
        id: &str,
        capability: csi::VolumeCapability,
    ) -> Self {
        let staging = bench.path("stage").join(place);
        std::fs::create_dir_all(&staging).unwrap();
        let target = bench.path("pods").join(place);
        let (id, context) = (id.to_owned(), BTreeMap::new());
        Self { id, capability, staging, target, read_only: false, context }
    }

    /// A file in the mounted volume.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.target.join(name)
    }
}

/// A filesystem for one node.
pub(crate) fn mounted(fs_type: &str) -> csi::VolumeCapability {
    mounted_as(fs_type, &[], Mode::SingleNodeWriter)
}

pub(crate) fn mounted_as(fs_type: &str, flags: &[&str], mode: Mode) -> csi::VolumeCapability {
    let mount = MountVolume {
        fs_type: fs_type.to_owned(),
        mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Default::default()
    };
    csi::VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

/// A block device for one node.
pub(crate) fn block() -> csi::VolumeCapability {
    block_as(Mode::SingleNodeWriter)
}

pub(crate) fn block_as(mode: Mode) -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(AccessType::Block(BlockVolume {})),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

/// A request for a volume of at least so many bytes.
pub(crate) fn volume(
    name: &str,
    size: u64,
    capability: csi::VolumeCapability,
) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: range(size),
        volume_capabilities: vec![capability],
        ..Default::default()
    }
}

pub(crate) fn range(size: u64) -> Option<csi::CapacityRange> {
    let required_bytes = i64::try_from(size).unwrap();
    Some(csi::CapacityRange { required_bytes, limit_bytes: 0 })
}

pub(crate) fn from_snapshot(id: &str) -> Option<csi::VolumeContentSource> {
    use csi::volume_content_source::{SnapshotSource, Type};
    let snapshot = SnapshotSource { snapshot_id: id.to_owned() };
    Some(csi::VolumeContentSource { r#type: Some(Type::Snapshot(snapshot)) })
}

pub(crate) fn from_volume(id: &str) -> Option<csi::VolumeContentSource> {
    use csi::volume_content_source::{Type, VolumeSource};
    let volume = VolumeSource { volume_id: id.to_owned() };
    Some(csi::VolumeContentSource { r#type: Some(Type::Volume(volume)) })
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A call with a deadline, and the answer without its wrapping.
macro_rules! call {
    ($client:expr, $rpc:ident, $request:expr) => {{
        let request = wharf_uds::timed($request, LIMIT);
        $client.$rpc(request).await.map(tonic::Response::into_inner)
    }};
}

impl Client {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { channel: Channel::new(socket, ChannelOptions::default()) }
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Waits until the driver answers that it is ready.
    pub(crate) async fn ready(&self, limit: Duration) -> anyhow::Result<()> {
        self.channel.connected(limit).await?;
        let driver = Driver::new(self.channel.path(), DriverOptions::default());
        wharf_testkit::process::wait_for(limit, "the driver to be ready", async || {
            driver.probe().await.is_ok_and(|ready| ready).then_some(())
        })
        .await
    }

    pub(crate) fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    pub(crate) fn groups(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel.clone())
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    pub(crate) async fn create(
        &self,
        request: csi::CreateVolumeRequest,
    ) -> Result<csi::Volume, Status> {
        Ok(call!(self.controller(), create_volume, request)?.volume.unwrap())
    }

    pub(crate) async fn delete(&self, id: &str) -> Result<(), Status> {
        let request = csi::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        call!(self.controller(), delete_volume, request).map(drop)
    }

    pub(crate) async fn attach(&self, usage: &Usage) -> Result<(), Status> {
        let request = csi::ControllerPublishVolumeRequest {
            volume_id: usage.id.clone(),
            node_id: NODE.to_owned(),
            volume_capability: Some(usage.capability.clone()),
            readonly: usage.read_only,
            ..Default::default()
        };
        call!(self.controller(), controller_publish_volume, request).map(drop)
    }

    pub(crate) async fn detach(&self, id: &str) -> Result<(), Status> {
        let request = csi::ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: NODE.to_owned(),
            ..Default::default()
        };
        call!(self.controller(), controller_unpublish_volume, request).map(drop)
    }

    pub(crate) async fn stage(&self, usage: &Usage) -> Result<(), Status> {
        let request = csi::NodeStageVolumeRequest {
            volume_id: usage.id.clone(),
            staging_target_path: text(&usage.staging),
            volume_capability: Some(usage.capability.clone()),
            ..Default::default()
        };
        call!(self.node(), node_stage_volume, request).map(drop)
    }

    pub(crate) async fn unstage(&self, usage: &Usage) -> Result<(), Status> {
        let request = csi::NodeUnstageVolumeRequest {
            volume_id: usage.id.clone(),
            staging_target_path: text(&usage.staging),
        };
        call!(self.node(), node_unstage_volume, request).map(drop)
    }

    pub(crate) async fn publish(&self, usage: &Usage) -> Result<(), Status> {
        let request = csi::NodePublishVolumeRequest {
            volume_id: usage.id.clone(),
            staging_target_path: text(&usage.staging),
            target_path: text(&usage.target),
            volume_capability: Some(usage.capability.clone()),
            readonly: usage.read_only,
            volume_context: usage.context.clone(),
            ..Default::default()
        };
        call!(self.node(), node_publish_volume, request).map(drop)
    }

    pub(crate) async fn unpublish(&self, usage: &Usage) -> Result<(), Status> {
        let request = csi::NodeUnpublishVolumeRequest {
            volume_id: usage.id.clone(),
            target_path: text(&usage.target),
        };
        call!(self.node(), node_unpublish_volume, request).map(drop)
    }

    /// Stages and publishes.
    pub(crate) async fn bring_up(&self, usage: &Usage) -> Result<(), Status> {
        self.stage(usage).await?;
        self.publish(usage).await
    }

    /// Unpublishes and unstages.
    pub(crate) async fn take_down(&self, usage: &Usage) -> Result<(), Status> {
        self.unpublish(usage).await?;
        self.unstage(usage).await
    }

    pub(crate) async fn snapshot(&self, name: &str, source: &str) -> Result<csi::Snapshot, Status> {
        let request = csi::CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: source.to_owned(),
            ..Default::default()
        };
        Ok(call!(self.controller(), create_snapshot, request)?.snapshot.unwrap())
    }

    pub(crate) async fn delete_snapshot(&self, id: &str) -> Result<(), Status> {
        let request =
            csi::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        call!(self.controller(), delete_snapshot, request).map(drop)
    }

    pub(crate) async fn group(
        &self,
        name: &str,
        sources: &[&str],
    ) -> Result<csi::VolumeGroupSnapshot, Status> {
        let request = csi::CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: sources.iter().map(|id| (*id).to_owned()).collect(),
            ..Default::default()
        };
        Ok(call!(self.groups(), create_volume_group_snapshot, request)?.group_snapshot.unwrap())
    }

    pub(crate) async fn delete_group(
        &self,
        group: &csi::VolumeGroupSnapshot,
    ) -> Result<(), Status> {
        let members = group.snapshots.iter().map(|member| member.snapshot_id.clone());
        let request = csi::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.group_snapshot_id.clone(),
            snapshot_ids: members.collect(),
            ..Default::default()
        };
        call!(self.groups(), delete_volume_group_snapshot, request).map(drop)
    }

    pub(crate) async fn expand(&self, id: &str, size: u64) -> Result<u64, Status> {
        let request = csi::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: range(size),
            ..Default::default()
        };
        let grown = call!(self.controller(), controller_expand_volume, request)?;
        Ok(u64::try_from(grown.capacity_bytes).unwrap())
    }

    pub(crate) async fn node_expand(&self, usage: &Usage, size: u64) -> Result<u64, Status> {
        let request = csi::NodeExpandVolumeRequest {
            volume_id: usage.id.clone(),
            volume_path: text(&usage.target),
            capacity_range: range(size),
            ..Default::default()
        };
        let grown = call!(self.node(), node_expand_volume, request)?;
        Ok(u64::try_from(grown.capacity_bytes).unwrap())
    }

    pub(crate) async fn modify(&self, id: &str, limits: &[(&str, &str)]) -> Result<(), Status> {
        let request = csi::ControllerModifyVolumeRequest {
            volume_id: id.to_owned(),
            mutable_parameters: map(limits),
            ..Default::default()
        };
        call!(self.controller(), controller_modify_volume, request).map(drop)
    }

    /// What is wrong with a volume, as pairs of the kind and the reason.
    pub(crate) async fn health(&self, id: &str) -> Result<Vec<String>, Status> {
        let request = csi::ControllerGetVolumeHealthRequest {
            volume_id: id.to_owned(),
            ..Default::default()
        };
        let health = call!(self.controller(), controller_get_volume_health, request)?;
        let found = health.volume_health.unwrap_or_default().health_statuses;
        Ok(found.into_iter().map(|it| format!("{:?} {}", it.status(), it.reason)).collect())
    }

    /// What is wrong with the pool, as the kind and the reason.
    pub(crate) async fn storage_health(&self) -> Result<Vec<String>, Status> {
        let request = csi::NodeGetStorageHealthRequest::default();
        let health = call!(self.node(), node_get_storage_health, request)?;
        let found = health.backend_health.into_iter();
        Ok(found.map(|it| format!("{:?} {}", it.status(), it.reason)).collect())
    }

    /// What the pool can still promise.
    pub(crate) async fn capacity(&self) -> Result<u64, Status> {
        let answer = call!(self.controller(), get_capacity, csi::GetCapacityRequest::default())?;
        Ok(u64::try_from(answer.available_capacity).unwrap())
    }

    /// GetCapacity for a StorageClass with these parameters.
    pub(crate) async fn capacity_of(
        &self,
        parameters: &[(&str, &str)],
    ) -> Result<csi::GetCapacityResponse, Status> {
        let request = csi::GetCapacityRequest { parameters: map(parameters), ..Default::default() };
        call!(self.controller(), get_capacity, request)
    }

    /// The ids of all volumes.
    pub(crate) async fn list(&self) -> Result<Vec<String>, Status> {
        let answer = call!(self.controller(), list_volumes, csi::ListVolumesRequest::default())?;
        Ok(answer.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect())
    }
}

pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
