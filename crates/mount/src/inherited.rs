//! Files that came with the process, by their numbers.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

/// Takes the file of this number, which the process was started with. It cannot be taken twice, and closes on exec from
/// here on.
///
/// # Errors
/// When there is no file of this number, or this process has opened it itself.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    crate::sys::inherited::take(number)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

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
