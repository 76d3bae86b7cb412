//! Requests of the Node service.

use std::path::PathBuf;

use tonic::Status;
use wharf_facts::context::EPHEMERAL;
use wharf_proto::csi;

use super::check;
use crate::types::{Capability, CapacityRange, Context, Parameters, Secrets, VolumeId};

/// Stage a volume on the node, once for all workloads that use it there.
#[derive(Clone, Debug)]
pub struct NodeStageVolume {
    /// The volume.
    pub volume: VolumeId,
    /// A folder that the orchestrator created.
    pub staging_path: PathBuf,
    /// How the volume will be used.
    pub capability: Capability,
    /// Context that `ControllerPublishVolume` returned.
    pub publish_context: Parameters,
    /// Context that the driver returned when it created the volume.
    pub context: Context,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::NodeStageVolumeRequest> for NodeStageVolume {
    type Error = Status;

    fn try_from(wire: csi::NodeStageVolumeRequest) -> Result<Self, Status> {
        Ok(Self {
            volume: check::volume_id(wire.volume_id)?,
            staging_path: check::path("staging_target_path", wire.staging_target_path)?,
            capability: check::capability("volume_capability", wire.volume_capability)?,
            publish_context: check::map("publish_context", wire.publish_context)?,
            context: check::context(wire.volume_context)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}

/// Unstage a volume.
#[derive(Clone, Debug)]
pub struct NodeUnstageVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Path at which the volume is staged.
    pub staging_path: PathBuf,
}

impl TryFrom<csi::NodeUnstageVolumeRequest> for NodeUnstageVolume {
    type Error = Status;

    fn try_from(wire: csi::NodeUnstageVolumeRequest) -> Result<Self, Status> {
        let volume = check::volume_id(wire.volume_id)?;
        let staging_path = check::path("staging_target_path", wire.staging_target_path)?;
        Ok(Self { volume, staging_path })
    }
}

/// Publish a volume to one workload.
#[derive(Clone, Debug)]
pub struct NodePublishVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Path at which the volume is staged. Always set for drivers with
    /// [`Staging`](crate::driver::Staging), except for inline volumes of a pod
    /// ([`is_ephemeral`](NodePublishVolume::is_ephemeral)).
    pub staging_path: Option<PathBuf>,
    /// Path at which the workload finds the volume. Its parent exists. The driver creates the path,
    /// a folder for a filesystem and a file for a block device, and removes it on unpublish.
    pub target_path: PathBuf,
    /// How the volume will be used.
    pub capability: Capability,
    /// Whether the workload must not write.
    pub read_only: bool,
    /// Context that `ControllerPublishVolume` returned.
    pub publish_context: Parameters,
    /// Context that the driver returned when it created the volume, and what Kubernetes adds about
    /// the pod.
    pub context: Context,
    /// Credentials.
    pub secrets: Secrets,
}

impl NodePublishVolume {
    /// Whether this is an inline volume of a pod: this call creates it, and NodeUnpublishVolume
    /// deletes it.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        self.context.get(EPHEMERAL).is_some_and(|value| value == "true")
    }
}

impl TryFrom<csi::NodePublishVolumeRequest> for NodePublishVolume {
    type Error = Status;

    fn try_from(wire: csi::NodePublishVolumeRequest) -> Result<Self, Status> {
        Ok(Self {
            volume: check::volume_id(wire.volume_id)?,
            staging_path: check::optional_path("staging_target_path", wire.staging_target_path)?,
            target_path: check::path("target_path", wire.target_path)?,
            capability: check::capability("volume_capability", wire.volume_capability)?,
            read_only: wire.readonly,
            publish_context: check::map("publish_context", wire.publish_context)?,
            context: check::context(wire.volume_context)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}

/// Unpublish a volume.
#[derive(Clone, Debug)]
pub struct NodeUnpublishVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Path at which the volume is published; to be removed.
    pub target_path: PathBuf,
}

impl TryFrom<csi::NodeUnpublishVolumeRequest> for NodeUnpublishVolume {
    type Error = Status;

    fn try_from(wire: csi::NodeUnpublishVolumeRequest) -> Result<Self, Status> {
        let volume = check::volume_id(wire.volume_id)?;
        Ok(Self { volume, target_path: check::path("target_path", wire.target_path)? })
    }
}

/// Report the usage of a volume.
#[derive(Clone, Debug)]
pub struct NodeGetVolumeStats {
    /// The volume.
    pub volume: VolumeId,
    /// Path at which the volume is published or staged.
    pub volume_path: PathBuf,
    /// Path at which the volume is staged, if the orchestrator sends it.
    pub staging_path: Option<PathBuf>,
}

impl TryFrom<csi::NodeGetVolumeStatsRequest> for NodeGetVolumeStats {
    type Error = Status;

    fn try_from(wire: csi::NodeGetVolumeStatsRequest) -> Result<Self, Status> {
        Ok(Self {
            volume: check::volume_id(wire.volume_id)?,
            volume_path: check::volume_path("volume_path", wire.volume_path)?,
            staging_path: check::optional_path("staging_target_path", wire.staging_target_path)?,
        })
    }
}

/// Expand the node's part of a volume, such as its filesystem.
#[derive(Clone, Debug)]
pub struct NodeExpandVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Path at which the volume is published or staged.
    pub volume_path: PathBuf,
    /// Path at which the volume is staged, if the orchestrator sends it.
    pub staging_path: Option<PathBuf>,
    /// Required size. If absent, the size of the volume.
    pub capacity: CapacityRange,
    /// How the volume is used, if the orchestrator sends it.
    pub capability: Option<Capability>,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::NodeExpandVolumeRequest> for NodeExpandVolume {
    type Error = Status;

    fn try_from(wire: csi::NodeExpandVolumeRequest) -> Result<Self, Status> {
        Ok(Self {
            volume: check::volume_id(wire.volume_id)?,
            volume_path: check::volume_path("volume_path", wire.volume_path)?,
            staging_path: check::optional_path("staging_target_path", wire.staging_target_path)?,
            capacity: check::capacity(wire.capacity_range)?,
            capability: check::optional_capability(wire.volume_capability)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}

/// Report the health of a volume on this node.
#[derive(Clone, Debug)]
pub struct NodeGetVolumeHealth {
    /// The volume.
    pub volume: VolumeId,
    /// Path at which the volume is published, if the orchestrator sends it.
    pub publish_path: Option<PathBuf>,
    /// Path at which the volume is staged, if the orchestrator sends it.
    pub staging_path: Option<PathBuf>,
}

impl TryFrom<csi::NodeGetVolumeHealthRequest> for NodeGetVolumeHealth {
    type Error = Status;

    fn try_from(wire: csi::NodeGetVolumeHealthRequest) -> Result<Self, Status> {
        let volume = check::volume_id(wire.volume_id)?;
        let published = Some(wire.volume_publish_path).filter(|path| !path.is_empty());
        let published = published.map(|path| check::volume_path("volume_publish_path", path));
        Ok(Self {
            volume,
            publish_path: published.transpose()?,
            staging_path: check::optional_path("staging_target_path", wire.staging_target_path)?,
        })
    }
}
