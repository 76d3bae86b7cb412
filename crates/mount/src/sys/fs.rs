//! ioctls of filesystems: freeze, thaw and grow.

use std::{ffi::c_int, os::fd::AsFd};

use rustix::{
    io,
    ioctl::{Getter, Opcode, Setter, ioctl, opcode},
};

const FIFREEZE: Opcode = opcode::read_write::<c_int>(b'X', 119);
const FITHAW: Opcode = opcode::read_write::<c_int>(b'X', 120);
const EXT4_IOC_RESIZE_FS: Opcode = opcode::write::<u64>(b'f', 16);
const XFS_IOC_FSGEOMETRY_V4: Opcode = opcode::read::<XfsGeometry>(b'X', 124);
const XFS_IOC_FSGROWFSDATA: Opcode = opcode::write::<XfsGrow>(b'X', 110);

/// `struct xfs_fsop_geom_v4`, which every kernel since 2.6 fills. Most of its fields are unused
/// here.
#[repr(C)]
pub(crate) struct XfsGeometry {
    pub(crate) block_size: u32,
    rt_extent_size: u32,
    ag_blocks: u32,
    ag_count: u32,
    log_blocks: u32,
    sector_size: u32,
    inode_size: u32,
    pub(crate) inode_percent: u32,
    pub(crate) data_blocks: u64,
    rt_blocks: u64,
    rt_extents: u64,
    log_start: u64,
    uuid: [u8; 16],
    rest: [u32; 8],
}

#[repr(C)]
struct XfsGrow {
    blocks: u64,
    inode_percent: u32,
    padding: u32,
}

/// Flushes the filesystem of `file` and blocks all writes to it.
pub(crate) fn freeze(file: &impl AsFd) -> io::Result<()> {
    // SAFETY: FIFREEZE ignores its argument; a zero is passed for it.
    let request = unsafe { Setter::<FIFREEZE, c_int>::new(0) };
    // SAFETY: as above.
    unsafe { ioctl(file, request) }
}

/// Undoes [`freeze`].
pub(crate) fn thaw(file: &impl AsFd) -> io::Result<()> {
    // SAFETY: FITHAW ignores its argument; a zero is passed for it.
    let request = unsafe { Setter::<FITHAW, c_int>::new(0) };
    // SAFETY: as above.
    unsafe { ioctl(file, request) }
}

/// Grows a mounted ext4 to `blocks`.
pub(crate) fn ext4_resize(root: &impl AsFd, blocks: u64) -> io::Result<()> {
    // SAFETY: EXT4_IOC_RESIZE_FS reads one u64.
    let request = unsafe { Setter::<EXT4_IOC_RESIZE_FS, u64>::new(blocks) };
    // SAFETY: as above; other filesystems answer ENOTTY.
    unsafe { ioctl(root, request) }
}

/// Returns the geometry of a mounted XFS.
pub(crate) fn xfs_geometry(root: &impl AsFd) -> io::Result<XfsGeometry> {
    // SAFETY: the structure has the layout and the size (112 bytes, part of the number) that
    // XFS_IOC_FSGEOMETRY_V4 fills, and any bytes are a valid value of it.
    let request = unsafe { Getter::<XFS_IOC_FSGEOMETRY_V4, XfsGeometry>::new() };
    // SAFETY: as above; other filesystems return ENOTTY.
    unsafe { ioctl(root, request) }
}

/// Grows a mounted XFS to `blocks`.
pub(crate) fn xfs_grow(root: &impl AsFd, blocks: u64, inode_percent: u32) -> io::Result<()> {
    let grow = XfsGrow { blocks, inode_percent, padding: 0 };
    // SAFETY: the structure has the layout that XFS_IOC_FSGROWFSDATA reads.
    let request = unsafe { Setter::<XFS_IOC_FSGROWFSDATA, XfsGrow>::new(grow) };
    // SAFETY: as above.
    unsafe { ioctl(root, request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!((size_of::<XfsGeometry>(), size_of::<XfsGrow>()), (112, 16));
        assert_eq!(XFS_IOC_FSGEOMETRY_V4, 0x8070_587c);
    }
}
