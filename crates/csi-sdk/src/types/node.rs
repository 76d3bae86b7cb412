//! What a node's side tells.

use wharf_proto::csi;

use super::volume::signed;
use super::{Condition, NodeId, Topology};

/// The node, as its driver sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// What `ControllerPublishVolume` is given to name it; at most 256 bytes.
    pub id: NodeId,
    /// How many volumes fit; `None` leaves it to the orchestrator.
    pub max_volumes: Option<u64>,
    /// Where the node stands; needed, and only shown, if the plugin is built with
    /// [`topology`](crate::PluginBuilder::topology).
    pub topology: Option<Topology>,
}

impl NodeInfo {
    /// A node without limits.
    pub fn new(id: impl Into<NodeId>) -> Self {
        Self { id: id.into(), max_volumes: None, topology: None }
    }
}

/// How full a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// In bytes.
    pub bytes: Option<Usage>,
    /// In inodes; none for block devices.
    pub inodes: Option<Usage>,
    /// How it does, for orchestrators before CSI 1.13; only shown by drivers that say so.
    pub condition: Option<Condition>,
}

/// Parts of a whole. A block device knows only its total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What is there in all.
    pub total: u64,
    /// What is in use.
    pub used: u64,
    /// What can still be used.
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
