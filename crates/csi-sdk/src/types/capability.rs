//! How a volume is used.

use std::fmt;

use serde::{Deserialize, Serialize};
use wharf_proto::csi;

/// One way of using a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Block device or filesystem.
    pub access: Access,
    /// How many nodes and workloads may use the volume, and whether they write.
    pub mode: AccessMode,
}

/// Form in which a workload gets a volume.
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// A block device.
    Block,
    /// A mounted filesystem.
    Mount {
        /// Filesystem type; empty leaves the choice to the driver.
        fs_type: String,
        /// Mount options. They may hold credentials: do not log them.
        flags: Vec<String>,
        /// Group that owns the files. Only set for drivers with VOLUME_MOUNT_GROUP
        /// ([`Node::mount_group`](crate::driver::Node::mount_group)).
        group: Option<String>,
    },
}

impl Access {
    /// Whether this is a block device.
    #[must_use]
    pub fn is_block(&self) -> bool {
        matches!(self, Self::Block)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("Block"),
            Self::Mount { fs_type, flags, group } => f
                .debug_struct("Mount")
                .field("fs_type", fs_type)
                .field("flags", &format_args!("***stripped*** ({})", flags.len()))
                .field("group", group)
                .finish(),
        }
    }
}

/// Nodes and workloads that may use a volume at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AccessMode {
    /// Read and written on one node.
    SingleNodeWriter,
    /// Read on one node.
    SingleNodeReaderOnly,
    /// Read on many nodes.
    MultiNodeReaderOnly,
    /// Written on one node, read on others.
    MultiNodeSingleWriter,
    /// Read and written on many nodes.
    MultiNodeMultiWriter,
    /// Read and written by one workload on one node.
    SingleNodeSingleWriter,
    /// Read and written by many workloads on one node.
    SingleNodeMultiWriter,
}

impl AccessMode {
    /// Whether the volume may be used on several nodes at once.
    #[must_use]
    pub fn is_multi_node(self) -> bool {
        use AccessMode::{MultiNodeMultiWriter, MultiNodeReaderOnly, MultiNodeSingleWriter};
        matches!(self, MultiNodeReaderOnly | MultiNodeSingleWriter | MultiNodeMultiWriter)
    }

    /// Whether the volume may be published to several targets of one node.
    #[must_use]
    pub fn is_multi_target(self) -> bool {
        self.is_multi_node() || self == Self::SingleNodeMultiWriter
    }

    /// Whether the mode forbids writing.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }

    /// Whether the mode depends on the capability SINGLE_NODE_MULTI_WRITER.
    #[must_use]
    pub fn counts_workloads(self) -> bool {
        matches!(self, Self::SingleNodeSingleWriter | Self::SingleNodeMultiWriter)
    }
}

impl TryFrom<csi::volume_capability::access_mode::Mode> for AccessMode {
    type Error = ();

    fn try_from(mode: csi::volume_capability::access_mode::Mode) -> Result<Self, ()> {
        use csi::volume_capability::access_mode::Mode;
        Ok(match mode {
            Mode::Unknown => return Err(()),
            Mode::SingleNodeWriter => Self::SingleNodeWriter,
            Mode::SingleNodeReaderOnly => Self::SingleNodeReaderOnly,
            Mode::MultiNodeReaderOnly => Self::MultiNodeReaderOnly,
            Mode::MultiNodeSingleWriter => Self::MultiNodeSingleWriter,
            Mode::MultiNodeMultiWriter => Self::MultiNodeMultiWriter,
            Mode::SingleNodeSingleWriter => Self::SingleNodeSingleWriter,
            Mode::SingleNodeMultiWriter => Self::SingleNodeMultiWriter,
        })
    }
}

impl From<AccessMode> for csi::volume_capability::access_mode::Mode {
    fn from(mode: AccessMode) -> Self {
        match mode {
            AccessMode::SingleNodeWriter => Self::SingleNodeWriter,
            AccessMode::SingleNodeReaderOnly => Self::SingleNodeReaderOnly,
            AccessMode::MultiNodeReaderOnly => Self::MultiNodeReaderOnly,
            AccessMode::MultiNodeSingleWriter => Self::MultiNodeSingleWriter,
            AccessMode::MultiNodeMultiWriter => Self::MultiNodeMultiWriter,
            AccessMode::SingleNodeSingleWriter => Self::SingleNodeSingleWriter,
            AccessMode::SingleNodeMultiWriter => Self::SingleNodeMultiWriter,
        }
    }
}
