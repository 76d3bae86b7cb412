//! How a volume is to be used.

use std::fmt;

use serde::{Deserialize, Serialize};
use wharf_proto::csi;

/// One way in which a volume is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// As a device or as a file system.
    pub access: Access,
    /// By how many nodes and workloads, and for what.
    pub mode: AccessMode,
}

/// What a workload sees of a volume.
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// A block device.
    Block,
    /// A mounted file system.
    Mount {
        /// Empty leaves the choice to the driver.
        fs_type: String,
        /// Options for the mount. They may hold credentials: not for logs.
        flags: Vec<String>,
        /// The group that shall own the files; only for drivers that say so ([`Node::mount_group`](crate::driver::Node)).
        group: Option<String>,
    },
}

impl Access {
    /// Whether it is a block device.
    #[must_use]
    pub fn is_block(&self) -> bool {
        matches!(self, Access::Block)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Block => f.write_str("Block"),
            Access::Mount { fs_type, flags, group } => f
                .debug_struct("Mount")
                .field("fs_type", fs_type)
                .field("flags", &format_args!("***stripped*** ({})", flags.len()))
                .field("group", group)
                .finish(),
        }
    }
}

/// Who may use a volume at the same time.
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
        self.is_multi_node() || self == AccessMode::SingleNodeMultiWriter
    }

    /// Whether nobody may write.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        matches!(self, AccessMode::SingleNodeReaderOnly | AccessMode::MultiNodeReaderOnly)
    }

    /// Whether it is one of the modes that SINGLE_NODE_MULTI_WRITER brings.
    #[must_use]
    pub fn counts_workloads(self) -> bool {
        matches!(self, AccessMode::SingleNodeSingleWriter | AccessMode::SingleNodeMultiWriter)
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
