//! What to watch.

use std::ffi::OsStr;
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::Duration;

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The watched folder. Reported paths start with it as it is written here.
    pub root: PathBuf,
    /// How far down.
    pub depth: Depth,
    /// What is reported.
    pub kind: Kind,
    /// How often everything is looked at, should an event have been missed.
    pub rescan: Duration,
    /// Makes the root, and its parents, with this mode. Tried until the root was there once: a root
    /// that is removed later is for its owner to make again.
    pub create_root: Option<u32>,
}

/// How far down to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only what is in the root itself.
    Folder,
    /// Everything below the root.
    Tree,
}

/// What is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unix sockets.
    Socket,
    /// Regular files; one that is written to, or gets another owner or mode, counts as replaced.
    File,
}

impl Kind {
    pub(crate) fn matches(self, file_type: FileType) -> bool {
        match self {
            Kind::Socket => file_type.is_socket(),
            Kind::File => file_type.is_file(),
        }
    }
}

/// Whether a name below the root is left alone.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}
