//! The ioctl FS_IOC_FIEMAP.

use std::os::fd::AsFd;

use rustix::{
    io,
    ioctl::{Opcode, Updater, ioctl, opcode},
};

/// Maximum number of extents per call: 14 KiB of stack.
pub(crate) const BATCH: usize = 256;

const FS_IOC_FIEMAP: Opcode = opcode::read_write::<Header>(b'f', 11);
const FLAG_SYNC: u32 = 1;

/// `struct fiemap` without its extents.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawExtent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    reserved_long: [u64; 2],
    pub(crate) flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Request {
    header: Header,
    extents: [RawExtent; BATCH],
}

/// The last extent of the file.
pub(crate) const LAST: u32 = 0x1;
/// Allocated, but reads as zeros.
pub(crate) const UNWRITTEN: u32 = 0x800;
/// Shared with another file.
pub(crate) const SHARED: u32 = 0x2000;

/// Returns the first extents at or after the byte `start`.
pub(crate) fn extents(
    file: &impl AsFd,
    start: u64,
    sync: bool,
) -> io::Result<impl Iterator<Item = RawExtent>> {
    let mut request = Request {
        header: Header { count: BATCH as u32, ..header(start, sync) },
        extents: [RawExtent::default(); BATCH],
    };
    // SAFETY: the header gives the number of extents that follow it, which `Request` has space for.
    let update = unsafe { Updater::<FS_IOC_FIEMAP, Request>::new(&mut request) };
    // SAFETY: as above; the kernel writes at most `count` extents.
    unsafe { ioctl(file, update)? };
    Ok(request.extents.into_iter().take(request.header.mapped as usize))
}

/// Returns the number of extents.
pub(crate) fn count(file: &impl AsFd, sync: bool) -> io::Result<u32> {
    let mut header = header(0, sync);
    // SAFETY: for a count of zero the kernel writes only the header.
    let update = unsafe { Updater::<FS_IOC_FIEMAP, Header>::new(&mut header) };
    // SAFETY: as above.
    unsafe { ioctl(file, update)? };
    Ok(header.mapped)
}

fn header(start: u64, sync: bool) -> Header {
    let flags = if sync { FLAG_SYNC } else { 0 };
    Header { start, length: u64::MAX - start, flags, ..Header::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_size() {
        assert_eq!((size_of::<Header>(), size_of::<RawExtent>()), (32, 56));
        assert_eq!(FS_IOC_FIEMAP, 0xc020_660b);
    }
}
