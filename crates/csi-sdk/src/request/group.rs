//! Requests about snapshots of several volumes.

use tonic::Status;
use wharf_proto::csi;

use super::check;
use crate::{
    fingerprint::{Fingerprint, Part},
    types::{GroupSnapshotId, Parameters, Secrets, SnapshotId, VolumeId},
};

/// Take snapshots of several volumes at one instant, or find the group of this name.
#[derive(Clone, Debug)]
pub struct CreateVolumeGroupSnapshot {
    /// Chosen by the orchestrator: the same name gives the same group. It may be any text: do not
    /// use it as a file name.
    pub name: String,
    /// The volumes, each once; at least one.
    pub sources: Vec<VolumeId>,
    /// Parameters of the VolumeGroupSnapshotClass.
    pub parameters: Parameters,
    /// Credentials.
    pub secrets: Secrets,
    /// To be stored with the group. Does not depend on the order of the volumes.
    pub fingerprint: Fingerprint,
}

impl TryFrom<csi::CreateVolumeGroupSnapshotRequest> for CreateVolumeGroupSnapshot {
    type Error = Status;

    fn try_from(wire: csi::CreateVolumeGroupSnapshotRequest) -> Result<Self, Status> {
        let name = check::text("name", wire.name)?;
        if wire.source_volume_ids.is_empty() {
            return Err(check::refused("source_volume_ids", "at least one volume"));
        }
        let sources: Vec<VolumeId> = check::ids("source_volume_ids", wire.source_volume_ids)?;
        let mut sorted: Vec<&str> = sources.iter().map(VolumeId::as_str).collect();
        sorted.sort_unstable();
        let fingerprint = Fingerprint::default()
            .with_texts(Part::Source, sorted.into_iter())
            .with_map(Part::Parameters, &wire.parameters);
        Ok(Self {
            name,
            sources,
            parameters: check::map("parameters", wire.parameters)?,
            secrets: check::secrets(wire.secrets)?,
            fingerprint,
        })
    }
}

/// Delete a group and all its snapshots.
#[derive(Clone, Debug)]
pub struct DeleteVolumeGroupSnapshot {
    /// The group.
    pub group: GroupSnapshotId,
    /// The members that the orchestrator knows; a driver that stores them itself compares. Never
    /// empty: the SDK locks the listed members.
    pub snapshots: Vec<SnapshotId>,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::DeleteVolumeGroupSnapshotRequest> for DeleteVolumeGroupSnapshot {
    type Error = Status;

    fn try_from(wire: csi::DeleteVolumeGroupSnapshotRequest) -> Result<Self, Status> {
        Ok(Self {
            group: check::group_snapshot_id(wire.group_snapshot_id)?,
            snapshots: check::ids("snapshot_ids", wire.snapshot_ids)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}

/// Return a group.
#[derive(Clone, Debug)]
pub struct GetVolumeGroupSnapshot {
    /// The group.
    pub group: GroupSnapshotId,
    /// The members that the orchestrator knows; a driver that stores them itself compares.
    pub snapshots: Vec<SnapshotId>,
    /// Credentials.
    pub secrets: Secrets,
}

impl TryFrom<csi::GetVolumeGroupSnapshotRequest> for GetVolumeGroupSnapshot {
    type Error = Status;

    fn try_from(wire: csi::GetVolumeGroupSnapshotRequest) -> Result<Self, Status> {
        Ok(Self {
            group: check::group_snapshot_id(wire.group_snapshot_id)?,
            snapshots: check::ids("snapshot_ids", wire.snapshot_ids)?,
            secrets: check::secrets(wire.secrets)?,
        })
    }
}
