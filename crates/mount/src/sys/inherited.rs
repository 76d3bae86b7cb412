//! File descriptors inherited from the parent process.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use rustix::io::FdFlags;

/// Takes over an inherited descriptor. Each can be taken once.
///
/// The standard library and rustix set close-on-exec on every descriptor that this process opens. A
/// descriptor without it was inherited, and no value owns it. This function sets the flag.
pub(crate) fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only reads flags, and fails with EBADF if the descriptor is not open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "it was opened by this process"));
    }
    // SAFETY: the descriptor is open and was inherited: no value of this program owns it.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC)?;
    Ok(file)
}
