use wharf_cluster::PersistentVolumeSpec;
use wharf_facts::access_mode::{AccessModeError, csi_access_mode};
use wharf_proto::csi::{
    VolumeCapability,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume},
};

/// The CSI capability for a volume of this mode, filesystem and access mode.
pub(crate) fn of(
    spec: &PersistentVolumeSpec,
    fs_type: &str,
    single_node_multi_writer: bool,
) -> Result<VolumeCapability, AccessModeError> {
    let access_type = if spec.is_block() {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: spec.mount_options.to_vec(),
            volume_mount_group: String::new(),
        })
    };
    let mode = csi_access_mode(&spec.access_modes, single_node_multi_writer)?;
    Ok(VolumeCapability {
        access_mode: Some(AccessMode { mode: mode as i32 }),
        access_type: Some(access_type),
    })
}
