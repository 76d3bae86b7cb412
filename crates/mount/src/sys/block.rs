//! ioctls of any block device.

use std::os::fd::AsFd;

use rustix::{
    io,
    ioctl::{Getter, Opcode, Setter, ioctl, opcode},
};

const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Returns the size in bytes.
pub(crate) fn size(device: &impl AsFd) -> io::Result<u64> {
    // SAFETY: BLKGETSIZE64 writes a u64, although its number encodes another type.
    let request = unsafe { Getter::<BLKGETSIZE64, u64>::new() };
    // SAFETY: as above; a file that is not a block device returns ENOTTY.
    unsafe { ioctl(device, request) }
}

/// Discards these bytes of the device.
pub(crate) fn discard(device: &impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64, offset and length.
    let request = unsafe { Setter::<BLKDISCARD, [u64; 2]>::new([offset, length]) };
    // SAFETY: as above.
    unsafe { ioctl(device, request) }
}
