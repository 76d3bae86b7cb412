//! ioctls of any block device.

use std::os::fd::AsFd;

use rustix::io;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Its size in bytes.
pub(crate) fn size(device: &impl AsFd) -> io::Result<u64> {
    // SAFETY: BLKGETSIZE64 writes a u64, whatever the type in its number says.
    let request = unsafe { Getter::<BLKGETSIZE64, u64>::new() };
    // SAFETY: as above; a file that is no block device answers ENOTTY.
    unsafe { ioctl(device, request) }
}

/// Tells the device that these bytes are not needed any more.
pub(crate) fn discard(device: &impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64, offset and length.
    let request = unsafe { Setter::<BLKDISCARD, [u64; 2]>::new([offset, length]) };
    // SAFETY: as above.
    unsafe { ioctl(device, request) }
}
