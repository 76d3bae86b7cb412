//! The ioctl FICLONERANGE.

use std::os::fd::{AsFd, AsRawFd};

use rustix::{
    io,
    ioctl::{Opcode, Setter, ioctl, opcode},
};

const FICLONERANGE: Opcode = opcode::write::<CloneRange>(0x94, 13);

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    length: u64,
    offset: u64,
}

/// Makes `dst` share the blocks of `src` in this range, which must be whole blocks, at the same
/// offset.
pub(crate) fn clone_range(
    src: &impl AsFd,
    dst: &impl AsFd,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    let source = i64::from(src.as_fd().as_raw_fd());
    let range = CloneRange { source, source_offset: offset, length, offset };
    // SAFETY: the structure has the layout and the size (32 bytes, part of the number) that
    // FICLONERANGE reads, and `src` stays open during the call.
    let request = unsafe { Setter::<FICLONERANGE, CloneRange>::new(range) };
    // SAFETY: as above; filesystems that cannot share blocks return EOPNOTSUPP.
    unsafe { ioctl(dst, request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!(size_of::<CloneRange>(), 32);
        assert_eq!(FICLONERANGE, 0x4020_940d);
    }
}
