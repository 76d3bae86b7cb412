use clap::{Args, ValueEnum};
use wharf_proto::csi::{
    VolumeCapability,
    volume_capability::{
        AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode as CsiMode,
    },
};

use super::need::{ControllerRpc, Need, NodeRpc};

/// Flags for the volume_capability of most requests.
#[derive(Args)]
pub(crate) struct Access {
    /// Filesystem, such as ext4 or xfs. Default: the driver chooses
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "block"
    )]
    fs: String,
    /// Use the volume as a raw block device instead of a filesystem
    #[arg(long)]
    block: bool,
    /// Access mode: the nodes and pods that may use the volume at the same time
    #[arg(long, value_enum, default_value = "single-node-writer")]
    mode: Mode,
    /// Mount option, such as noatime
    #[arg(long = "mount-flag", value_name = "OPTION", conflicts_with = "block")]
    mount_flags: Vec<String>,
    /// Group that owns the files (volume_mount_group)
    #[arg(
        long,
        value_name = "GROUP",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "block"
    )]
    mount_group: String,
}

/// The access modes of CSI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    SingleNodeWriter,
    SingleNodeReaderOnly,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
}

impl Access {
    /// The volume_capability for a request.
    pub(crate) fn capability(&self) -> VolumeCapability {
        let access_type = match self.block {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(MountVolume {
                fs_type: self.fs.clone(),
                mount_flags: self.mount_flags.clone(),
                volume_mount_group: self.mount_group.clone(),
            }),
        };
        let mode = match self.mode {
            Mode::SingleNodeWriter => CsiMode::SingleNodeWriter,
            Mode::SingleNodeReaderOnly => CsiMode::SingleNodeReaderOnly,
            Mode::SingleNodeSingleWriter => CsiMode::SingleNodeSingleWriter,
            Mode::SingleNodeMultiWriter => CsiMode::SingleNodeMultiWriter,
            Mode::MultiNodeReaderOnly => CsiMode::MultiNodeReaderOnly,
            Mode::MultiNodeSingleWriter => CsiMode::MultiNodeSingleWriter,
            Mode::MultiNodeMultiWriter => CsiMode::MultiNodeMultiWriter,
        };
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.into() }),
            access_type: Some(access_type),
        }
    }

    /// The controller capability that the access mode needs, if any.
    pub(crate) fn controller_needs(&self) -> Vec<Need> {
        let writers = Need::Controller(ControllerRpc::SingleNodeMultiWriter);
        self.counts_writers().then_some(writers).into_iter().collect()
    }

    /// The node capabilities that these flags need.
    pub(crate) fn node_needs(&self) -> Vec<Need> {
        let writers = self.counts_writers().then_some(Need::Node(NodeRpc::SingleNodeMultiWriter));
        let group = !self.mount_group.is_empty();
        let group = group.then_some(Need::Node(NodeRpc::VolumeMountGroup));
        writers.into_iter().chain(group).collect()
    }

    /// Whether the mode was added to CSI later and needs the capability SINGLE_NODE_MULTI_WRITER.
    fn counts_writers(&self) -> bool {
        matches!(self.mode, Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter)
    }
}
