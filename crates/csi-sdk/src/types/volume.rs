//! Volumes, as a driver tells of them.

use serde::{Deserialize, Serialize};
use wharf_proto::csi;

use super::{NodeId, Parameters, SnapshotId, Topology, VolumeId};

/// A volume that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its ID, chosen by the driver and never used again for another.
    pub id: VolumeId,
    /// Its size in bytes.
    pub capacity: u64,
    /// Handed back in every later call for this volume. It never changes, and must not be needed to find the volume.
    pub context: Parameters,
    /// What it was made from.
    pub source: Option<ContentSource>,
    /// Where it can be used; empty means everywhere.
    pub topology: Vec<Topology>,
}

impl Volume {
    /// An empty volume that can be used everywhere.
    pub fn new(id: impl Into<VolumeId>, capacity: u64) -> Self {
        let (context, topology) = (Parameters::new(), Vec::new());
        Self { id: id.into(), capacity, context, source: None, topology }
    }
}

/// What a new volume starts with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentSource {
    /// The contents of a snapshot.
    Snapshot(SnapshotId),
    /// The contents of another volume, now.
    Volume(VolumeId),
}

/// Which sources a driver makes volumes from. A source that is not declared is refused before the driver sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Snapshots.
    pub snapshot: bool,
    /// Other volumes, which is CLONE_VOLUME.
    pub volume: bool,
}

/// A volume and how it does, as lists and lookups show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEntry {
    /// The volume.
    pub volume: Volume,
    /// The nodes that it is published to; only shown by drivers that say so.
    pub published_nodes: Vec<NodeId>,
    /// How it does, for orchestrators before CSI 1.13; only shown by drivers that say so.
    pub condition: Option<Condition>,
}

impl From<Volume> for VolumeEntry {
    fn from(volume: Volume) -> Self {
        Self { volume, published_nodes: Vec::new(), condition: None }
    }
}

/// How a volume does, in the words of CSI 1.12 and older.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether something is wrong.
    pub abnormal: bool,
    /// For people; never empty.
    pub message: String,
}

/// How much more can be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvailableCapacity {
    /// Bytes for volumes to come.
    pub available: u64,
    /// The largest volume that can be made.
    pub maximum_volume_size: Option<u64>,
    /// The smallest volume that can be made.
    pub minimum_volume_size: Option<u64>,
}

/// Whether a volume can be used as asked. Neither is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validation {
    /// Everything asked for holds.
    Confirmed,
    /// Something does not, and why.
    Unsupported(String),
}

/// The outcome of an expansion in the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expanded {
    /// The size now, in bytes.
    pub capacity: u64,
    /// Whether the node has to do its part, such as growing the file system.
    pub node_expansion_required: bool,
}

/// When a volume can be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpansionMode {
    /// At any time.
    Online,
    /// Only while it is not published.
    Offline,
}

impl From<Volume> for csi::Volume {
    fn from(volume: Volume) -> Self {
        Self {
            capacity_bytes: signed(volume.capacity),
            volume_id: volume.id.into(),
            volume_context: volume.context,
            content_source: volume.source.map(Into::into),
            accessible_topology: volume.topology.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ContentSource> for csi::VolumeContentSource {
    fn from(source: ContentSource) -> Self {
        use csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
        let source = match source {
            ContentSource::Snapshot(id) => {
                Type::Snapshot(SnapshotSource { snapshot_id: id.into() })
            }
            ContentSource::Volume(id) => Type::Volume(VolumeSource { volume_id: id.into() }),
        };
        Self { r#type: Some(source) }
    }
}

impl From<Condition> for csi::VolumeCondition {
    fn from(condition: Condition) -> Self {
        Self { abnormal: condition.abnormal, message: condition.message }
    }
}

/// Sizes are signed on the wire; what does not fit is as large as can be said.
pub(crate) fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
