//! The settings of a watch.

use std::{
    ffi::OsStr,
    fs::FileType,
    os::unix::{ffi::OsStrExt, fs::FileTypeExt},
    path::PathBuf,
    time::Duration,
};

/// The settings of a watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// The watched folder. Reported paths start with it as it is written here.
    pub root: PathBuf,
    /// How far down to watch.
    pub depth: Depth,
    /// Which files are reported.
    pub kind: Kind,
    /// How often everything is scanned, in case an event was missed.
    pub rescan: Duration,
    /// Makes the root and its parents with this mode, until the root has existed once: a root that
    /// is removed later is left to its owner.
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

/// Which files are reported.
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
            Self::Socket => file_type.is_socket(),
            Self::File => file_type.is_file(),
        }
    }
}

/// Whether a name below the root is ignored.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}
