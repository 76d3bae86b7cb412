//! Snapshots in a driver's answers.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use wharf_proto::csi;

use super::{GroupSnapshotId, SnapshotId, Topology, VolumeId, volume::signed};

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// ID, chosen by the driver and never reused.
    pub id: SnapshotId,
    /// The source volume, which may have been deleted.
    pub source: VolumeId,
    /// Minimum size in bytes of a volume created from the snapshot.
    pub size: u64,
    /// Time at which the snapshot was taken.
    pub created: SystemTime,
    /// False while the snapshot is being copied or uploaded; the orchestrator then asks again.
    pub ready: bool,
    /// The group snapshot to which the snapshot belongs.
    pub group: Option<GroupSnapshotId>,
    /// Places in which volumes can be created from the snapshot; empty means everywhere.
    pub topology: Vec<Topology>,
}

/// Snapshots of several volumes, taken at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSnapshot {
    /// ID, chosen by the driver and never reused.
    pub id: GroupSnapshotId,
    /// Time at which the snapshots were taken.
    pub created: SystemTime,
    /// Members. The group is ready when all of them are.
    pub snapshots: Vec<Snapshot>,
}

/// Filter of a list of snapshots; all set parts must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// Only the snapshot with this ID.
    pub snapshot: Option<SnapshotId>,
    /// Only snapshots of this volume.
    pub source: Option<VolumeId>,
}

impl SnapshotFilter {
    /// Whether the snapshot matches the filter.
    #[must_use]
    pub fn admits(&self, snapshot: &Snapshot) -> bool {
        self.snapshot.as_ref().is_none_or(|id| *id == snapshot.id)
            && self.source.as_ref().is_none_or(|id| *id == snapshot.source)
    }
}

impl From<Snapshot> for csi::Snapshot {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            size_bytes: signed(snapshot.size),
            snapshot_id: snapshot.id.into(),
            source_volume_id: snapshot.source.into(),
            creation_time: Some(snapshot.created.into()),
            ready_to_use: snapshot.ready,
            group_snapshot_id: snapshot.group.map(Into::into).unwrap_or_default(),
            accessible_topology: snapshot.topology.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<GroupSnapshot> for csi::VolumeGroupSnapshot {
    fn from(group: GroupSnapshot) -> Self {
        let GroupSnapshot { id, created, snapshots } = group;
        let ready_to_use = snapshots.iter().all(|snapshot| snapshot.ready);
        let member = |snapshot: Snapshot| Snapshot { group: Some(id.clone()), ..snapshot }.into();
        Self {
            snapshots: snapshots.into_iter().map(member).collect(),
            group_snapshot_id: id.clone().into(),
            creation_time: Some(created.into()),
            ready_to_use,
        }
    }
}
