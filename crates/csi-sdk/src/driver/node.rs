//! Volumes on a node.

use async_trait::async_trait;

use crate::error::{
    Failure, NodeExpandVolumeError, NodeGetVolumeHealthError, NodeGetVolumeStatsError,
    NodePublishVolumeError, NodeStageVolumeError, NodeUnpublishVolumeError, NodeUnstageVolumeError,
};
use crate::request::{
    NodeExpandVolume, NodeGetVolumeHealth, NodeGetVolumeStats, NodePublishVolume, NodeStageVolume,
    NodeUnpublishVolume, NodeUnstageVolume,
};
use crate::types::{ExpansionMode, HealthProblem, NodeInfo, Secrets, StorageProblem, VolumeStats};

/// What every node has.
#[async_trait]
pub trait Node: Send + Sync + 'static {
    /// Whether a file system's files are given to the group that is asked for, which is VOLUME_MOUNT_GROUP.
    fn mount_group(&self) -> bool {
        false
    }

    /// The node, as the driver sees it.
    async fn info(&self) -> Result<NodeInfo, Failure>;

    /// Shows a volume at the target path, which is to be made.
    async fn publish(&self, request: NodePublishVolume) -> Result<(), NodePublishVolumeError>;

    /// Removes a volume from the target path, and the path; if it is not there, that is fine.
    async fn unpublish(&self, request: NodeUnpublishVolume)
    -> Result<(), NodeUnpublishVolumeError>;
}

/// STAGE_UNSTAGE_VOLUME.
#[async_trait]
pub trait Staging: Send + Sync + 'static {
    /// Brings a volume to the node, at the staging path, which is there.
    async fn stage(&self, request: NodeStageVolume) -> Result<(), NodeStageVolumeError>;

    /// Undoes a stage; if it is not staged, that is fine.
    async fn unstage(&self, request: NodeUnstageVolume) -> Result<(), NodeUnstageVolumeError>;
}

/// GET_VOLUME_STATS.
#[async_trait]
pub trait Stats: Send + Sync + 'static {
    /// Whether the answer tells the condition, which is VOLUME_CONDITION.
    fn shows_condition(&self) -> bool {
        false
    }

    /// How full a volume is.
    async fn stats(
        &self,
        request: NodeGetVolumeStats,
    ) -> Result<VolumeStats, NodeGetVolumeStatsError>;
}

/// EXPAND_VOLUME on the node.
#[async_trait]
pub trait NodeExpansion: Send + Sync + 'static {
    /// When volumes can be expanded. [`Expansion::mode`](super::Expansion::mode) is asked instead, if there is one.
    fn mode(&self) -> ExpansionMode {
        ExpansionMode::Online
    }

    /// Makes the node's part of a volume larger, or tells that it is large enough: the size now, in bytes.
    async fn expand(&self, request: NodeExpandVolume) -> Result<u64, NodeExpandVolumeError>;
}

/// GET_VOLUME_HEALTH on the node.
#[async_trait]
pub trait NodeVolumeHealth: Send + Sync + 'static {
    /// What a volume suffers from on this node; nothing, if it is well.
    async fn health(
        &self,
        request: NodeGetVolumeHealth,
    ) -> Result<Vec<HealthProblem>, NodeGetVolumeHealthError>;
}

/// GET_STORAGE_HEALTH.
#[async_trait]
pub trait StorageHealth: Send + Sync + 'static {
    /// What the storage behind this node's volumes suffers from; nothing, if it is well.
    async fn health(&self, secrets: Secrets) -> Result<Vec<StorageProblem>, Failure>;
}
