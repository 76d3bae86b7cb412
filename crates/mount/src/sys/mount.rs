//! mount_setattr(2).

use std::os::fd::{AsFd, AsRawFd};

use rustix::io;

/// Makes the detached mount behind `mount` read-only.
pub(crate) fn set_read_only(mount: &impl AsFd) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is an empty C string and the structure is passed with its own size; the
    // kernel reads both and keeps neither.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    if answer == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> io::Errno {
    io::Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(io::Errno::IO)
}
