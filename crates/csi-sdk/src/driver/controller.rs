//! Traits of the Controller service that are about volumes.

use async_trait::async_trait;

use super::Existing;
use crate::{
    error::{
        ControllerExpandVolumeError, ControllerGetVolumeError, ControllerGetVolumeHealthError,
        ControllerModifyVolumeError, ControllerPublishVolumeError, ControllerUnpublishVolumeError,
        CreateVolumeError, DeleteVolumeError, Failure, ValidateVolumeCapabilitiesError,
    },
    request::{
        ControllerExpandVolume, ControllerModifyVolume, ControllerPublishVolume,
        ControllerUnpublishVolume, CreateVolume, DeleteVolume, GetCapacity,
        ValidateVolumeCapabilities,
    },
    types::{
        AvailableCapacity, Expanded, ExpansionMode, HealthProblem, Parameters, Sources,
        UnhealthyVolume, Validation, Volume, VolumeEntry, VolumeId,
    },
};

/// Creates and deletes volumes: CREATE_DELETE_VOLUME, and CLONE_VOLUME if
/// [`sources`](Volumes::sources) declares it.
#[async_trait]
pub trait Volumes: Send + Sync + 'static {
    /// Kinds of sources that volumes can be created from. None by default.
    fn sources(&self) -> Sources {
        Sources::default()
    }

    /// Returns the complete volume of this name.
    ///
    /// A volume that is partly created, or partly copied from its source, must not be returned: the
    /// result is the answer to a repeated call. The SDK then calls [`create`](Volumes::create),
    /// which completes the volume under the same ID.
    async fn existing(&self, name: &str) -> Result<Option<Existing<Volume>>, Failure>;

    /// Creates a volume, or completes one of this name that an earlier call began. Called only
    /// after [`existing`](Volumes::existing) returned `None`.
    ///
    /// If the begun volume belongs to another request, the error is ALREADY_EXISTS: compare with
    /// [`Fingerprint::difference`](crate::Fingerprint::difference). The returned volume's `source`
    /// may be `None`; the SDK then fills in the request's.
    async fn create(&self, request: CreateVolume) -> Result<Volume, CreateVolumeError>;

    /// Deletes a volume. Succeeds if the volume does not exist.
    async fn delete(&self, request: DeleteVolume) -> Result<(), DeleteVolumeError>;

    /// Checks whether a volume supports the given capabilities.
    async fn validate(
        &self,
        request: ValidateVolumeCapabilities,
    ) -> Result<Validation, ValidateVolumeCapabilitiesError>;
}

/// Attaches volumes to nodes: PUBLISH_UNPUBLISH_VOLUME.
#[async_trait]
pub trait Attachments: Send + Sync + 'static {
    /// Whether the driver honors `read_only`: PUBLISH_READONLY.
    fn honors_read_only(&self) -> bool {
        false
    }

    /// Attaches a volume to a node. Returns the publish context for the driver on that node.
    async fn publish(
        &self,
        request: ControllerPublishVolume,
    ) -> Result<Parameters, ControllerPublishVolumeError>;

    /// Detaches a volume from one node, or from all. Succeeds if the volume is not attached or does
    /// not exist.
    async fn unpublish(
        &self,
        request: ControllerUnpublishVolume,
    ) -> Result<(), ControllerUnpublishVolumeError>;
}

/// Lists volumes: LIST_VOLUMES.
#[async_trait]
pub trait VolumeList: Send + Sync + 'static {
    /// Whether entries name the nodes of a volume: LIST_VOLUMES_PUBLISHED_NODES. Has no effect
    /// without [`Attachments`].
    fn shows_published_nodes(&self) -> bool {
        false
    }

    /// Whether entries have a condition: VOLUME_CONDITION.
    fn shows_condition(&self) -> bool {
        false
    }

    /// Returns the first `limit` volumes with an ID greater than `after`, sorted by ID.
    async fn list(
        &self,
        after: Option<VolumeId>,
        limit: usize,
    ) -> Result<Vec<VolumeEntry>, Failure>;
}

/// Looks up one volume: GET_VOLUME.
#[async_trait]
pub trait VolumeLookup: Send + Sync + 'static {
    /// Whether the entry has a condition: VOLUME_CONDITION.
    fn shows_condition(&self) -> bool {
        false
    }

    /// Returns one volume.
    async fn get(&self, volume: VolumeId) -> Result<VolumeEntry, ControllerGetVolumeError>;
}

/// Reports free capacity: GET_CAPACITY.
#[async_trait]
pub trait CapacityReport: Send + Sync + 'static {
    /// Returns the free capacity. For parameters that the driver cannot serve it is 0, not an
    /// error.
    async fn available(&self, request: GetCapacity) -> Result<AvailableCapacity, Failure>;
}

/// Expands volumes in the control plane: EXPAND_VOLUME of the Controller service.
#[async_trait]
pub trait Expansion: Send + Sync + 'static {
    /// Whether volumes can be expanded while they are published.
    fn mode(&self) -> ExpansionMode;

    /// Expands a volume. A volume that is large enough keeps its size.
    async fn expand(
        &self,
        request: ControllerExpandVolume,
    ) -> Result<Expanded, ControllerExpandVolumeError>;
}

/// Changes parameters of volumes: MODIFY_VOLUME. Without this trait, a CreateVolume with mutable
/// parameters is refused.
#[async_trait]
pub trait Modification: Send + Sync + 'static {
    /// Applies all parameters, or none if one of them is unknown.
    async fn modify(
        &self,
        request: ControllerModifyVolume,
    ) -> Result<(), ControllerModifyVolumeError>;
}

/// Reports health of volumes in the control plane: GET_VOLUME_HEALTH and LIST_VOLUME_HEALTH.
#[async_trait]
pub trait VolumeHealth: Send + Sync + 'static {
    /// Returns the problems of a volume; empty if it is healthy.
    async fn get(
        &self,
        volume: VolumeId,
    ) -> Result<Vec<HealthProblem>, ControllerGetVolumeHealthError>;

    /// Returns the first `limit` volumes that have problems and an ID greater than `after`, sorted
    /// by ID.
    async fn list(
        &self,
        after: Option<VolumeId>,
        limit: usize,
    ) -> Result<Vec<UnhealthyVolume>, Failure>;
}
