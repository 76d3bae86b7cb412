//! The error type of this crate.

use std::{
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::Duration,
};

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation, with the file and the cause.
///
/// The system's error is the [source](std::error::Error::source) and not part of the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or device.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel refused to mount.
    #[error("cannot mount {} at {}{}", device.display(), target.display(), Reason(reason))]
    Mount {
        /// The device or bind source.
        device: PathBuf,
        /// The mount point.
        target: PathBuf,
        /// The kernel's message, such as `xfs: Unknown parameter 'bogus'`; empty if it gave none.
        reason: String,
        /// The system's error.
        source: io::Error,
    },
    /// A mount flag that volumes may not have.
    #[error("mount flag {flag:?} is not accepted: {expected}")]
    Flag {
        /// The flag, without its value, which may be secret.
        flag: String,
        /// What to use instead.
        expected: &'static str,
    },
    /// A mount has open files, or a device is open or mounted.
    #[error("cannot {operation} {}: it is in use", path.display())]
    Busy {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or device.
        path: PathBuf,
    },
    /// A path goes through a symlink where none is allowed.
    #[error("{} is a symlink: {} must not go through one", component.display(), path.display())]
    Symlink {
        /// The path to be used.
        path: PathBuf,
        /// The component that is a symlink.
        component: PathBuf,
    },
    /// A path that is relative or contains `..`.
    #[error("{} is not a plain absolute path: expected no \"..\" and a leading slash", path.display())]
    NotPlain {
        /// The path.
        path: PathBuf,
    },
    /// The filesystem and the device below it do not support an operation.
    #[error("{} does not support {operation}", path.display())]
    Unsupported {
        /// The missing feature, as a noun.
        operation: &'static str,
        /// The file or device.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The process lacks a capability.
    #[error("cannot {operation} {} without the capability {capability}", path.display())]
    NotPermitted {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or device.
        path: PathBuf,
        /// The missing capability.
        capability: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// All loop devices are in use, or the kernel has none.
    #[error(
        "no free loop device: is /dev/loop-control there, is the module loop loaded, and is \
         its parameter max_loop high enough?"
    )]
    NoLoopDevice {
        /// The system's error.
        source: io::Error,
    },
    /// A required program is not installed.
    #[error("{program} is not installed: install the package {package}")]
    MissingProgram {
        /// Name of the program.
        program: &'static str,
        /// The Debian package with the program.
        package: &'static str,
    },
    /// A program failed.
    #[error("{program} failed on {} ({status}): {output}", path.display())]
    Program {
        /// Name of the program.
        program: &'static str,
        /// The file or device it worked on.
        path: PathBuf,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The end of its output.
        output: String,
    },
    /// A wait for the kernel or for a program, which was killed, exceeded its deadline.
    #[error("cannot {operation} {}: not done after {waited:?}", path.display())]
    TimedOut {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or device.
        path: PathBuf,
        /// The length of the wait.
        waited: Duration,
    },
    /// The caller stopped a long copy.
    #[error("copy of {} was stopped after {copied} bytes", path.display())]
    Stopped {
        /// The source of the copy.
        path: PathBuf,
        /// Data bytes copied so far.
        copied: u64,
    },
    /// The source of a copy changed its size during the copy, so that the copy must be discarded.
    #[error("{} had {was} bytes when its copy began and has {is} now: copy it again", path.display())]
    Resized {
        /// The source of the copy.
        path: PathBuf,
        /// Its size at the start.
        was: u64,
        /// Its size when the change was noticed.
        is: u64,
    },
    /// A file of the kernel or a superblock has an unexpected format.
    #[error("{} is malformed: {detail}", path.display())]
    Malformed {
        /// The file or device.
        path: PathBuf,
        /// The expected and the found content.
        detail: String,
    },
}

impl Error {
    /// The number of the system's error, if the system caused this error.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. }
            | Self::Mount { source, .. }
            | Self::Unsupported { source, .. }
            | Self::NotPermitted { source, .. }
            | Self::NoLoopDevice { source } => source.raw_os_error(),
            Self::Busy { .. } => Some(libc::EBUSY),
            _ => None,
        }
    }

    /// The kind of the system's error, if the system caused this error.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        self.errno().map(|number| io::Error::from_raw_os_error(number).kind())
    }

    /// Whether the filesystem was full.
    pub fn is_full(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOSPC | libc::EDQUOT))
    }

    /// Creates an [`Error::Io`] from the system's error.
    pub(crate) fn io<E: Into<io::Error>>(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Io { operation, path, source: source.into() }
    }

    /// Like [`Self::io`], for an open file, whose path is looked up only on an error.
    pub(crate) fn file<E: Into<io::Error>>(
        operation: &'static str,
        file: &impl AsFd,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { operation, path: path_of(file), source: source.into() }
    }
}

/// The kernel's path of an open file, for messages.
pub(crate) fn path_of(file: &impl AsFd) -> PathBuf {
    let link = handle(file);
    std::fs::read_link(&link).unwrap_or(link)
}

/// A path that opens an open file again, even if the file was renamed or removed.
pub(crate) fn handle(file: &impl AsFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    Path::new("/proc/self/fd").join(file.as_fd().as_raw_fd().to_string())
}

struct Reason<'a>(&'a str);

impl std::fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}
