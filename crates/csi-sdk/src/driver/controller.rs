//! Volumes in the control plane.

use async_trait::async_trait;

use super::Existing;
use crate::error::{
    ControllerExpandVolumeError, ControllerGetVolumeError, ControllerGetVolumeHealthError,
    ControllerModifyVolumeError, ControllerPublishVolumeError, ControllerUnpublishVolumeError,
    CreateVolumeError, DeleteVolumeError, Failure, ValidateVolumeCapabilitiesError,
};
use crate::request::{
    ControllerExpandVolume, ControllerModifyVolume, ControllerPublishVolume,
    ControllerUnpublishVolume, CreateVolume, DeleteVolume, GetCapacity, ValidateVolumeCapabilities,
};
use crate::types::{
    AvailableCapacity, Expanded, ExpansionMode, HealthProblem, Parameters, Sources,
    UnhealthyVolume, Validation, Volume, VolumeEntry, VolumeId,
};

/// CREATE_DELETE_VOLUME, and CLONE_VOLUME if it is declared.
#[async_trait]
pub trait Volumes: Send + Sync + 'static {
    /// What volumes can be made from. Nothing, unless said.
    fn sources(&self) -> Sources {
        Sources::default()
    }

    /// The volume of this name, if it is whole.
    ///
    /// A volume that is half made, or half filled from its source, must not be shown: whatever is shown here is the
    /// answer to a repeated call. [`create`](Volumes::create) is then called, and finishes it under the same ID.
    async fn existing(&self, name: &str) -> Result<Option<Existing<Volume>>, Failure>;

    /// Makes a volume, or finishes one that was begun; [`existing`](Volumes::existing) has shown none of this name.
    ///
    /// A volume that was begun for another request is ALREADY_EXISTS:
    /// [`Fingerprint::difference`](crate::Fingerprint::difference) tells. The volume's `source` may be left out of the
    /// answer.
    async fn create(&self, request: CreateVolume) -> Result<Volume, CreateVolumeError>;

    /// Deletes a volume; one that is not there is fine.
    async fn delete(&self, request: DeleteVolume) -> Result<(), DeleteVolumeError>;

    /// Tells whether a volume can be used as asked.
    async fn validate(
        &self,
        request: ValidateVolumeCapabilities,
    ) -> Result<Validation, ValidateVolumeCapabilitiesError>;
}

/// PUBLISH_UNPUBLISH_VOLUME.
#[async_trait]
pub trait Attachments: Send + Sync + 'static {
    /// Whether `read_only` is heeded, which is PUBLISH_READONLY.
    fn heeds_read_only(&self) -> bool {
        false
    }

    /// Makes a volume available on a node, and answers what that node's driver has to know.
    async fn publish(
        &self,
        request: ControllerPublishVolume,
    ) -> Result<Parameters, ControllerPublishVolumeError>;

    /// Takes a volume from a node, or from all; if it is not there, or the volume is gone, that is fine.
    async fn unpublish(
        &self,
        request: ControllerUnpublishVolume,
    ) -> Result<(), ControllerUnpublishVolumeError>;
}

/// LIST_VOLUMES.
#[async_trait]
pub trait VolumeList: Send + Sync + 'static {
    /// Whether entries tell the nodes, which is LIST_VOLUMES_PUBLISHED_NODES; of no effect without
    /// [`Attachments`].
    fn shows_published_nodes(&self) -> bool {
        false
    }

    /// Whether entries tell the condition, which is VOLUME_CONDITION.
    fn shows_condition(&self) -> bool {
        false
    }

    /// The first volumes whose IDs are greater than `after`, by ID, at most `limit`.
    async fn list(
        &self,
        after: Option<VolumeId>,
        limit: usize,
    ) -> Result<Vec<VolumeEntry>, Failure>;
}

/// GET_VOLUME.
#[async_trait]
pub trait VolumeLookup: Send + Sync + 'static {
    /// Whether the entry tells the condition, which is VOLUME_CONDITION.
    fn shows_condition(&self) -> bool {
        false
    }

    /// One volume.
    async fn get(&self, volume: VolumeId) -> Result<VolumeEntry, ControllerGetVolumeError>;
}

/// GET_CAPACITY.
#[async_trait]
pub trait CapacityReport: Send + Sync + 'static {
    /// How much more can be stored. What cannot be stored at all has no room: that is no failure.
    async fn available(&self, request: GetCapacity) -> Result<AvailableCapacity, Failure>;
}

/// EXPAND_VOLUME in the control plane.
#[async_trait]
pub trait Expansion: Send + Sync + 'static {
    /// When volumes can be expanded.
    fn mode(&self) -> ExpansionMode;

    /// Makes a volume larger, or tells that it is large enough.
    async fn expand(
        &self,
        request: ControllerExpandVolume,
    ) -> Result<Expanded, ControllerExpandVolumeError>;
}

/// MODIFY_VOLUME. Without it, requests to create volumes have no mutable parameters.
#[async_trait]
pub trait Modification: Send + Sync + 'static {
    /// Applies all of the parameters, or, if one of them is not known, none.
    async fn modify(
        &self,
        request: ControllerModifyVolume,
    ) -> Result<(), ControllerModifyVolumeError>;
}

/// GET_VOLUME_HEALTH and LIST_VOLUME_HEALTH in the control plane.
#[async_trait]
pub trait VolumeHealth: Send + Sync + 'static {
    /// What a volume suffers from; nothing, if it is well.
    async fn get(
        &self,
        volume: VolumeId,
    ) -> Result<Vec<HealthProblem>, ControllerGetVolumeHealthError>;

    /// The first volumes with problems whose IDs are greater than `after`, by ID, at most `limit`.
    async fn list(
        &self,
        after: Option<VolumeId>,
        limit: usize,
    ) -> Result<Vec<UnhealthyVolume>, Failure>;
}
