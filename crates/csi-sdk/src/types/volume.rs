//! Volumes in a driver's answers.

use serde::{Deserialize, Serialize};
use wharf_proto::csi;

use super::{NodeId, Parameters, SnapshotId, Topology, VolumeId};

/// A volume that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// ID, chosen by the driver and never reused.
    pub id: VolumeId,
    /// Size in bytes.
    pub capacity: u64,
    /// Context that every later call for this volume receives. It never changes, and the driver
    /// must not need it to find the volume.
    pub context: Parameters,
    /// Source of the content.
    pub source: Option<ContentSource>,
    /// Places from which the volume can be used; empty means everywhere.
    pub topology: Vec<Topology>,
}

impl Volume {
    /// An empty volume that can be used everywhere.
    pub fn new(id: impl Into<VolumeId>, capacity: u64) -> Self {
        let (context, topology) = (Parameters::new(), Vec::new());
        Self { id: id.into(), capacity, context, source: None, topology }
    }
}

/// Source of a new volume's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentSource {
    /// The contents of a snapshot.
    Snapshot(SnapshotId),
    /// The present contents of another volume.
    Volume(VolumeId),
}

/// Kinds of sources that a driver creates volumes from. Other sources are refused before the driver
/// is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Snapshots.
    pub snapshot: bool,
    /// Other volumes: CLONE_VOLUME.
    pub volume: bool,
}

/// A volume in a list or lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEntry {
    /// The volume.
    pub volume: Volume,
    /// Nodes that the volume is published to. Only sent if the driver declares it.
    pub published_nodes: Vec<NodeId>,
    /// Condition, for orchestrators before CSI 1.13. Only sent if the driver declares it.
    pub condition: Option<Condition>,
}

impl From<Volume> for VolumeEntry {
    fn from(volume: Volume) -> Self {
        Self { volume, published_nodes: Vec::new(), condition: None }
    }
}

/// Condition of a volume, as CSI 1.12 and older define it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether the volume has a problem.
    pub abnormal: bool,
    /// Text for people; never empty.
    pub message: String,
}

/// Free capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvailableCapacity {
    /// Bytes available for new volumes.
    pub available: u64,
    /// Maximum size of a new volume.
    pub maximum_volume_size: Option<u64>,
    /// Minimum size of a new volume.
    pub minimum_volume_size: Option<u64>,
}

/// Whether a volume supports the given capabilities. Both are answers, not errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validation {
    /// The volume supports all of them.
    Confirmed,
    /// The volume does not support one of them, for the reason in the text.
    Unsupported(String),
}

/// Result of an expansion in the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expanded {
    /// Present size in bytes.
    pub capacity: u64,
    /// Whether the node must expand its part, such as the filesystem.
    pub node_expansion_required: bool,
}

/// When a volume can be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpansionMode {
    /// Also while it is published.
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

/// Converts a size to the signed type of the wire, capped at its maximum.
pub(crate) fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
