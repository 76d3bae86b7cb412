//! The one error of this crate.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What every function here returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed, on which file, and why.
///
/// The system's own words are the [source](std::error::Error::source), not part of the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel refused to mount, and perhaps said why.
    #[error("cannot mount {} at {}{}", device.display(), target.display(), Reason(reason))]
    Mount {
        /// The device or bind source.
        device: PathBuf,
        /// The mount point.
        target: PathBuf,
        /// The kernel's own words, such as `xfs: Unknown parameter 'bogus'`; empty if it gave none.
        reason: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A mount flag that makes no sense for a volume.
    #[error("mount flag {flag:?} is not accepted: {expected}")]
    Flag {
        /// The flag, without its value, which may be secret.
        flag: String,
        /// What to do instead.
        expected: &'static str,
    },
    /// Something is still in use: files are open below a mount, or a device is open or mounted.
    #[error("cannot {operation} {}: it is in use", path.display())]
    Busy {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
    },
    /// A path goes through a symlink where none is allowed.
    #[error("{} is a symlink: {} must not go through one", component.display(), path.display())]
    Symlink {
        /// The path that was to be used.
        path: PathBuf,
        /// The part of it that is a symlink.
        component: PathBuf,
    },
    /// A path is relative, or has `..` in it.
    #[error("{} is not a plain absolute path: expected no \"..\" and a leading slash", path.display())]
    NotPlain {
        /// The path as given.
        path: PathBuf,
    },
    /// Neither the filesystem nor the device below it can do this.
    #[error("{} does not support {operation}", path.display())]
    Unsupported {
        /// What is missing, as a noun.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The process lacks a capability.
    #[error("cannot {operation} {} without the capability {capability}", path.display())]
    NotPermitted {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What is missing.
        capability: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// All loop devices are taken, or there are none to be had.
    #[error(
        "no free loop device: is /dev/loop-control there, is the module loop loaded, and is \
         its parameter max_loop high enough?"
    )]
    NoLoopDevice {
        /// The system's answer.
        source: io::Error,
    },
    /// A program that does the work is not installed.
    #[error("{program} is not installed: install the package {package}")]
    MissingProgram {
        /// Its name.
        program: &'static str,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// A program said no.
    #[error("{program} failed on {} ({status}): {output}", path.display())]
    Program {
        /// Its name.
        program: &'static str,
        /// What it worked on.
        path: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The end of what it printed.
        output: String,
    },
    /// A wait was cut: of a program, which was killed, or of the kernel.
    #[error("cannot {operation} {}: not done after {waited:?}", path.display())]
    TimedOut {
        /// What was waited for, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// For how long.
        waited: Duration,
    },
    /// A long copy ended early, as its caller wished.
    #[error("copy of {} was stopped after {copied} bytes", path.display())]
    Stopped {
        /// The source.
        path: PathBuf,
        /// Bytes of data copied so far.
        copied: u64,
    },
    /// The source of a copy became longer or shorter while it was copied, so that the copy is of no moment.
    #[error("{} had {was} bytes when its copy began and has {is} now: copy it again", path.display())]
    Resized {
        /// The source.
        path: PathBuf,
        /// Its bytes at the begin.
        was: u64,
        /// Its bytes when that was noticed.
        is: u64,
    },
    /// A file of the kernel or a superblock is not as it must be.
    #[error("{} is malformed: {detail}", path.display())]
    Malformed {
        /// The file or device.
        path: PathBuf,
        /// What was expected and what was found.
        detail: String,
    },
}

impl Error {
    /// The number of the system's error, if there is one behind this.
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

    /// The kind of the system's error, if there is one behind this.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        self.errno().map(|number| io::Error::from_raw_os_error(number).kind())
    }

    /// No room was left on the filesystem.
    pub fn is_full(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOSPC | libc::EDQUOT))
    }

    /// Makes an [`Error::Io`] of what the system answered.
    pub(crate) fn io<E: Into<io::Error>>(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Io { operation, path, source: source.into() }
    }

    /// The same for an open file, whose path is only looked up now.
    pub(crate) fn file<E: Into<io::Error>>(
        operation: &'static str,
        file: &impl AsFd,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { operation, path: path_of(file), source: source.into() }
    }
}

/// The path of an open file as the kernel knows it, for messages.
pub(crate) fn path_of(file: &impl AsFd) -> PathBuf {
    let link = handle(file);
    std::fs::read_link(&link).unwrap_or(link)
}

/// A path that leads to an open file, whatever happens to its name.
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
