//! Snapshots, as a driver tells of them.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use wharf_proto::csi;

use super::volume::signed;
use super::{GroupSnapshotId, SnapshotId, Topology, VolumeId};

/// A snapshot that was cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its ID, chosen by the driver and never used again for another.
    pub id: SnapshotId,
    /// The volume that it shows, which may be gone.
    pub source: VolumeId,
    /// The least size of a volume made from it, in bytes.
    pub size: u64,
    /// The instant that it shows.
    pub created: SystemTime,
    /// False while it is still copied or uploaded; the orchestrator then asks again.
    pub ready: bool,
    /// The group snapshot that it is a member of.
    pub group: Option<GroupSnapshotId>,
    /// Where volumes can be made from it; empty means everywhere.
    pub topology: Vec<Topology>,
}

/// Snapshots of several volumes at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSnapshot {
    /// Its ID, chosen by the driver and never used again for another.
    pub id: GroupSnapshotId,
    /// The instant that it shows.
    pub created: SystemTime,
    /// Its members. The group is ready once they all are.
    pub snapshots: Vec<Snapshot>,
}

/// Which snapshots a list is to show. All of it has to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// Only this one.
    pub snapshot: Option<SnapshotId>,
    /// Only those of this volume.
    pub source: Option<VolumeId>,
}

impl SnapshotFilter {
    /// Whether the snapshot is to be shown.
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
