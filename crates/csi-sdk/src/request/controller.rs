//! Requests about volumes in the control plane.

use tonic::Status;
use wharf_proto::csi;

use super::check;
use crate::fingerprint::{Fingerprint, Part};
use crate::types::{
    Capability, CapacityRange, ContentSource, Context, NodeId, Parameters, Secrets, Topology,
    TopologyRequirement, VolumeId,
};

/// Make a volume, or find the one of this name.
#[derive(Clone, Debug)]
pub struct CreateVolume {
    /// Chosen by the orchestrator: the same name gives the same volume. Any text; never use it as the name of a file.
    pub name: String,
    /// How large it has to be; see [`CapacityRange::fit`].
    pub capacity: CapacityRange,
    /// All of these have to be possible; at least one.
    pub capabilities: Vec<Capability>,
    /// Of the storage class.
    pub parameters: Parameters,
    /// Those that `ControllerModifyVolume` may change later. Empty for drivers without
    /// [`Modification`](crate::driver::Modification).
    pub mutable_parameters: Parameters,
    /// What it starts with, of a kind that the driver declared.
    pub source: Option<ContentSource>,
    /// Where it has to be reachable from.
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

/// Delete a volume, if it is there.
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

/// Make a volume available on a node.
#[derive(Clone, Debug)]
pub struct ControllerPublishVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The node, as its driver named it in `NodeGetInfo`.
    pub node: NodeId,
    /// How it will be used.
    pub capability: Capability,
    /// Whether nobody may write; never set for drivers that do not heed it.
    pub read_only: bool,
    /// What the driver said when it made the volume.
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

/// Take a volume from a node.
#[derive(Clone, Debug)]
pub struct ControllerUnpublishVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The node; none means every node.
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

/// Tell whether a volume can be used in these ways.
#[derive(Clone, Debug)]
pub struct ValidateVolumeCapabilities {
    /// The volume.
    pub volume: VolumeId,
    /// All of these are asked for; at least one.
    pub capabilities: Vec<Capability>,
    /// What the driver said when it made the volume.
    pub context: Context,
    /// Of the storage class.
    pub parameters: Parameters,
    /// Of the volume attributes class.
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

/// Tell how much more can be stored.
#[derive(Clone, Debug)]
pub struct GetCapacity {
    /// For volumes that are used in all of these ways; may be empty.
    pub capabilities: Vec<Capability>,
    /// Of the storage class.
    pub parameters: Parameters,
    /// Where the volumes have to be reachable from.
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

/// Make a volume larger.
#[derive(Clone, Debug)]
pub struct ControllerExpandVolume {
    /// The volume.
    pub volume: VolumeId,
    /// How large it has to be.
    pub capacity: CapacityRange,
    /// How it is used, if the orchestrator knows.
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

/// Change what can be changed of a volume. What is not named here stays as it is.
#[derive(Clone, Debug)]
pub struct ControllerModifyVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The new values.
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
