//! File descriptors that came with the process.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::io::FdFlags;

/// Takes a descriptor that the process was started with. It cannot be taken twice.
///
/// What this process opened itself closes on exec, as the standard library and rustix have it, so a
/// descriptor that does not is one that came over the last exec and that nobody owns. From here on
/// it does.
pub(crate) fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD reads flags, and answers EBADF for a number without a file.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "it was opened by this process"));
    }
    // SAFETY: it is open, and came over the last exec: no value of this program owns it.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC)?;
    Ok(file)
}
