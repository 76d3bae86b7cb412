//! Takes over file descriptors that this process was started with.

use std::{
    io,
    os::fd::{OwnedFd, RawFd},
};

/// Takes the inherited descriptor with this number, and sets close-on-exec on it. Each descriptor
/// can be taken once.
///
/// # Errors
/// If no such descriptor is open, or this process opened it itself.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    crate::sys::inherited::take(number)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd};

    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::*;

    #[test]
    fn only_what_came_with_the_process_is_taken_and_only_once() {
        let ours = File::open("/dev/null").unwrap();
        assert_eq!(take(ours.as_raw_fd()).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        fcntl_setfd(&ours, FdFlags::empty()).unwrap();
        let number = std::os::fd::IntoRawFd::into_raw_fd(ours);
        let taken = take(number).unwrap();
        assert_eq!(fcntl_getfd(&taken).unwrap(), FdFlags::CLOEXEC);
        assert_eq!(take(number).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert!(take(1_000_000).is_err());
    }
}
