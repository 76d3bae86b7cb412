//! Requests about snapshots.

use tonic::Status;
use wharf_proto::csi;

use super::check;
use crate::{
    fingerprint::{Fingerprint, Part},
    types::{Parameters, Secrets, SnapshotId, TopologyRequirement, VolumeId},
};

/// Take a snapshot, or find the one of this name.
#[derive(Clone, Debug)]
pub struct CreateSnapshot {
    /// Chosen by the orchestrator: the same name gives the same snapshot. It may be any text: do
    /// not use it as a file name.
    pub name: String,
    /// The volume.
    pub source: VolumeId,
    /// Parameters of the VolumeSnapshotClass.
    pub parameters: Parameters,
    /// Places in which volumes will be created from the snapshot.
    pub topology: TopologyRequirement,
    /// Credentials.
    pub secrets: Secrets,
    /// To be stored with the snapshot.
    pub fingerprint: Fingerprint,
}

impl TryFrom<csi::CreateSnapshotRequest> for CreateSnapshot {
    type Error = Status;

    fn try_from(wire: csi::CreateSnapshotRequest) -> Result<Self, Status> {
        let fingerprint = Fingerprint::default()
            .with(Part::Source, wire.source_volume_id.as_bytes())
            .with_map(Part::Parameters, &wire.parameters)
            .with_message(Part::Topology, wire.accessibility_requirements.as_ref());
        Ok(Self {
            source: check::text("source_volume_id", wire.source_volume_id)?.into(),
            name: check::text("name", wire.name)?,
            parameters: check::map("parameters", wire.parameters)?,
            topology: check::topology(wire.accessibility_requirements)?,
            secrets: check::secrets(wire.secrets)?,
            fingerprint,
        })
    }
}

/// Delete a snapshot.
#[derive(Clone, Debug)]
pub struct DeleteSnapshot {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::DeleteSnapshotRequest> for DeleteSnapshot {
    type Error = Status;

    fn try_from(wire: csi::DeleteSnapshotRequest) -> Result<Self, Status> {
        let snapshot = check::snapshot_id(wire.snapshot_id)?;
        Ok(Self { snapshot, secrets: check::secrets(wire.secrets)? })
    }
}
