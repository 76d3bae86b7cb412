//! Results of the Node service.

use wharf_proto::csi;

use super::{Condition, NodeId, Topology, volume::signed};

/// The result of `NodeGetInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// ID that `ControllerPublishVolume` receives for this node; at most 256 bytes.
    pub id: NodeId,
    /// Maximum number of volumes on the node; `None` leaves the limit to the orchestrator.
    pub max_volumes: Option<u64>,
    /// Place of the node. Required, and only used, if the plugin is built with
    /// [`topology`](crate::PluginBuilder::topology).
    pub topology: Option<Topology>,
}

impl NodeInfo {
    /// A node without a volume limit and topology.
    pub fn new(id: impl Into<NodeId>) -> Self {
        Self { id: id.into(), max_volumes: None, topology: None }
    }
}

/// Usage of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Usage in bytes.
    pub bytes: Option<Usage>,
    /// Usage in inodes; `None` for block devices.
    pub inodes: Option<Usage>,
    /// Condition, for orchestrators before CSI 1.13. Only sent if
    /// [`Stats::shows_condition`](crate::driver::Stats::shows_condition).
    pub condition: Option<Condition>,
}

/// Total, used and available amounts. For a block device only the total is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Total amount.
    pub total: u64,
    /// Used amount.
    pub used: u64,
    /// Available amount.
    pub available: u64,
}

impl Usage {
    pub(crate) fn into_wire(self, unit: csi::volume_usage::Unit) -> csi::VolumeUsage {
        csi::VolumeUsage {
            available: signed(self.available),
            total: signed(self.total),
            used: signed(self.used),
            unit: unit.into(),
        }
    }
}
