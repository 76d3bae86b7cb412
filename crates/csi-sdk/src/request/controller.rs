//! Requests of the Controller service about volumes.

use tonic::Status;
use wharf_proto::csi;

use super::check;
use crate::{
    fingerprint::{Fingerprint, Part},
    types::{
        Capability, CapacityRange, ContentSource, Context, NodeId, Parameters, Secrets, Topology,
        TopologyRequirement, VolumeId,
    },
};

/// Create a volume, or find the one of this name.
#[derive(Clone, Debug)]
pub struct CreateVolume {
    /// Chosen by the orchestrator: the same name gives the same volume. It may be any text: do not
    /// use it as a file name.
    pub name: String,
    /// Required size; see [`CapacityRange::fit`].
    pub capacity: CapacityRange,
    /// Capabilities that the volume must all support; at least one.
    pub capabilities: Vec<Capability>,
    /// Parameters of the StorageClass.
    pub parameters: Parameters,
    /// Parameters that `ControllerModifyVolume` may change later. Empty for drivers without
    /// [`Modification`](crate::driver::Modification).
    pub mutable_parameters: Parameters,
    /// Initial content, from a kind of source that the driver declared.
    pub source: Option<ContentSource>,
    /// Places from which the volume must be reachable.
    pub topology: TopologyRequirement,
    /// Credentials.
    pub secrets: Secrets,
    /// To be stored with the volume.
    pub fingerprint: Fingerprint,
}

impl TryFrom<csi::CreateVolumeRequest> for CreateVolume {
    type Error = Status;

    fn try_from(wire: csi::CreateVolumeRequest) -> Result<Self, Status> {
        let fingerprint = fingerprint(&wire);
        Ok(Self {
            name: check::text("name", wire.name)?,
            capacity: check::capacity(wire.capacity_range)?,
            capabilities: check::required_capabilities(wire.volume_capabilities)?,
            parameters: check::map("parameters", wire.parameters)?,
            mutable_parameters: check::map("mutable_parameters", wire.mutable_parameters)?,
            source: check::source(wire.volume_content_source)?,
            topology: check::topology(wire.accessibility_requirements)?,
            secrets: check::secrets(wire.secrets)?,
            fingerprint,
        })
    }
}

fn fingerprint(wire: &csi::CreateVolumeRequest) -> Fingerprint {
    let capabilities = csi::GetCapacityRequest {
        volume_capabilities: wire.volume_capabilities.clone(),
        ..Default::default()
    };
    Fingerprint::default()
        .with_message(Part::Capacity, wire.capacity_range.as_ref())
        .with_message(Part::Capabilities, Some(&capabilities))
        .with_map(Part::Parameters, &wire.parameters)
        .with_map(Part::MutableParameters, &wire.mutable_parameters)
        .with_message(Part::Source, wire.volume_content_source.as_ref())
        .with_message(Part::Topology, wire.accessibility_requirements.as_ref())
}

/// Delete a volume.
#[derive(Clone, Debug)]
pub struct DeleteVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::DeleteVolumeRequest> for DeleteVolume {
    type Error = Status;

    fn try_from(wire: csi::DeleteVolumeRequest) -> Result<Self, Status> {
        let volume = check::volume_id(wire.volume_id)?;
        Ok(Self { volume, secrets: check::secrets(wire.secrets)? })
    }
}

/// Attach a volume to a node.
#[derive(Clone, Debug)]
pub struct ControllerPublishVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The node, by the ID that its driver returned from `NodeGetInfo`.
    pub node: NodeId,
    /// How the volume will be used.
    pub capability: Capability,
    /// Whether the volume must not be written to. Only set for drivers with
    /// [`Attachments::honors_read_only`](crate::driver::Attachments::honors_read_only).
    pub read_only: bool,
    /// Context that the driver returned when it created the volume.
    pub context: Context,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::ControllerPublishVolumeRequest> for ControllerPublishVolume {
    type Error = Status;

    fn try_from(wire: csi::ControllerPublishVolumeRequest) -> Result<Self, Status> {
        Ok(Self {
            volume: check::volume_id(wire.volume_id)?,
            node: check::node_id(wire.node_id)?,
            capability: check::capability("volume_capability", wire.volume_capability)?,
            read_only: wire.readonly,
            context: check::context(wire.volume_context)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}

/// Detach a volume from a node.
#[derive(Clone, Debug)]
pub struct ControllerUnpublishVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The node; `None` means every node.
    pub node: Option<NodeId>,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::ControllerUnpublishVolumeRequest> for ControllerUnpublishVolume {
    type Error = Status;

    fn try_from(wire: csi::ControllerUnpublishVolumeRequest) -> Result<Self, Status> {
        Ok(Self {
            volume: check::volume_id(wire.volume_id)?,
            node: check::optional_node_id(wire.node_id)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}

/// Check whether a volume supports some capabilities.
#[derive(Clone, Debug)]
pub struct ValidateVolumeCapabilities {
    /// The volume.
    pub volume: VolumeId,
    /// Capabilities to check; at least one.
    pub capabilities: Vec<Capability>,
    /// Context that the driver returned when it created the volume.
    pub context: Context,
    /// Parameters of the StorageClass.
    pub parameters: Parameters,
    /// Parameters of the VolumeAttributesClass.
    pub mutable_parameters: Parameters,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::ValidateVolumeCapabilitiesRequest> for ValidateVolumeCapabilities {
    type Error = Status;

    fn try_from(wire: csi::ValidateVolumeCapabilitiesRequest) -> Result<Self, Status> {
        Ok(Self {
            volume: check::volume_id(wire.volume_id)?,
            capabilities: check::required_capabilities(wire.volume_capabilities)?,
            context: check::context(wire.volume_context)?,
            parameters: check::map("parameters", wire.parameters)?,
            mutable_parameters: check::map("mutable_parameters", wire.mutable_parameters)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}

/// Report free capacity.
#[derive(Clone, Debug)]
pub struct GetCapacity {
    /// Capabilities of the volumes to be created; may be empty.
    pub capabilities: Vec<Capability>,
    /// Parameters of the StorageClass.
    pub parameters: Parameters,
    /// Place from which the volumes must be reachable.
    pub topology: Option<Topology>,
}

impl TryFrom<csi::GetCapacityRequest> for GetCapacity {
    type Error = Status;

    fn try_from(wire: csi::GetCapacityRequest) -> Result<Self, Status> {
        let segments = wire.accessible_topology.map(|place| place.segments);
        let place = segments.map(|segments| check::map("accessible_topology", segments));
        Ok(Self {
            capabilities: check::capabilities(wire.volume_capabilities)?,
            parameters: check::map("parameters", wire.parameters)?,
            topology: place.transpose()?.map(Topology),
        })
    }
}

/// Expand a volume.
#[derive(Clone, Debug)]
pub struct ControllerExpandVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Required size.
    pub capacity: CapacityRange,
    /// How the volume is used, if the orchestrator knows.
    pub capability: Option<Capability>,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::ControllerExpandVolumeRequest> for ControllerExpandVolume {
    type Error = Status;

    fn try_from(wire: csi::ControllerExpandVolumeRequest) -> Result<Self, Status> {
        Ok(Self {
            volume: check::volume_id(wire.volume_id)?,
            capacity: check::required_capacity(wire.capacity_range)?,
            capability: check::optional_capability(wire.volume_capability)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}

/// Change mutable parameters of a volume. Parameters not listed keep their values.
#[derive(Clone, Debug)]
pub struct ControllerModifyVolume {
    /// The volume.
    pub volume: VolumeId,
    /// New values.
    pub parameters: Parameters,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::ControllerModifyVolumeRequest> for ControllerModifyVolume {
    type Error = Status;

    fn try_from(wire: csi::ControllerModifyVolumeRequest) -> Result<Self, Status> {
        Ok(Self {
            volume: check::volume_id(wire.volume_id)?,
            parameters: check::map("mutable_parameters", wire.mutable_parameters)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}
