//! Traits of the Node service.

use async_trait::async_trait;

use crate::{
    error::{
        Failure, NodeExpandVolumeError, NodeGetVolumeHealthError, NodeGetVolumeStatsError,
        NodePublishVolumeError, NodeStageVolumeError, NodeUnpublishVolumeError,
        NodeUnstageVolumeError,
    },
    request::{
        NodeExpandVolume, NodeGetVolumeHealth, NodeGetVolumeStats, NodePublishVolume,
        NodeStageVolume, NodeUnpublishVolume, NodeUnstageVolume,
    },
    types::{ExpansionMode, HealthProblem, NodeInfo, Secrets, StorageProblem, VolumeStats},
};

/// Publishes volumes on a node. Every node plugin implements this trait.
#[async_trait]
pub trait Node: Send + Sync + 'static {
    /// Whether files get the group that the request names: VOLUME_MOUNT_GROUP.
    fn mount_group(&self) -> bool {
        false
    }

    /// Returns the node's ID, volume limit and topology.
    async fn info(&self) -> Result<NodeInfo, Failure>;

    /// Publishes a volume at the target path, which the driver creates.
    async fn publish(&self, request: NodePublishVolume) -> Result<(), NodePublishVolumeError>;

    /// Unpublishes a volume from the target path and removes the path. Succeeds if the path does
    /// not exist.
    async fn unpublish(&self, request: NodeUnpublishVolume)
    -> Result<(), NodeUnpublishVolumeError>;
}

/// Stages volumes on a node: STAGE_UNSTAGE_VOLUME.
#[async_trait]
pub trait Staging: Send + Sync + 'static {
    /// Stages a volume at the staging path, which exists.
    async fn stage(&self, request: NodeStageVolume) -> Result<(), NodeStageVolumeError>;

    /// Unstages a volume. Succeeds if the volume is not staged.
    async fn unstage(&self, request: NodeUnstageVolume) -> Result<(), NodeUnstageVolumeError>;
}

/// Reports usage of volumes: GET_VOLUME_STATS.
#[async_trait]
pub trait Stats: Send + Sync + 'static {
    /// Whether the answer has a condition: VOLUME_CONDITION.
    fn shows_condition(&self) -> bool {
        false
    }

    /// Returns the usage of a volume.
    async fn stats(
        &self,
        request: NodeGetVolumeStats,
    ) -> Result<VolumeStats, NodeGetVolumeStatsError>;
}

/// Expands volumes on a node: EXPAND_VOLUME of the Node service.
#[async_trait]
pub trait NodeExpansion: Send + Sync + 'static {
    /// Whether volumes can be expanded while they are published. Ignored if the plugin has an
    /// [`Expansion`](super::Expansion), whose mode counts.
    fn mode(&self) -> ExpansionMode {
        ExpansionMode::Online
    }

    /// Expands the node's part of a volume, such as its filesystem, unless it is large enough.
    /// Returns the present size in bytes.
    async fn expand(&self, request: NodeExpandVolume) -> Result<u64, NodeExpandVolumeError>;
}

/// Reports health of volumes on a node: GET_VOLUME_HEALTH of the Node service.
#[async_trait]
pub trait NodeVolumeHealth: Send + Sync + 'static {
    /// Returns the problems of a volume on this node; empty if it is healthy.
    async fn health(
        &self,
        request: NodeGetVolumeHealth,
    ) -> Result<Vec<HealthProblem>, NodeGetVolumeHealthError>;
}

/// Reports health of the storage of a node: GET_STORAGE_HEALTH.
#[async_trait]
pub trait StorageHealth: Send + Sync + 'static {
    /// Returns the problems of the storage behind this node's volumes; empty if it is healthy.
    async fn health(&self, secrets: Secrets) -> Result<Vec<StorageProblem>, Failure>;
}
