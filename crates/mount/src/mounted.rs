//! A mounted filesystem that this process holds open.

use std::{
    fs::File,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::syncfs;

use crate::{Error, Result};

/// A mounted filesystem, held by an open file of its root. Operations affect this filesystem even
/// if another filesystem is mounted over it or in its place.
#[derive(Debug)]
pub struct Mounted {
    root: File,
    point: PathBuf,
}

impl Mounted {
    /// Holds the filesystem at `point`.
    pub fn any(point: &Path) -> Result<Self> {
        let root = File::open(point).map_err(Error::io("open", point))?;
        Ok(Self { root, point: point.to_owned() })
    }

    /// Holds the filesystem on the device with the number `rdev`; `None` if another
    /// filesystem is at `point`.
    pub fn of_device(point: &Path, rdev: u64) -> Result<Option<Self>> {
        let found = match File::open(point) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            root => root.map_err(Error::io("open", point))?,
        };
        let found = Self { root: found, point: point.to_owned() };
        let metadata = found.root.metadata().map_err(Error::io("look at", point))?;
        Ok((metadata.dev() == rdev).then_some(found))
    }

    /// Flushes all data written so far. Writers are not blocked.
    ///
    /// Blocks as long as the disk takes, which may be forever on a broken one. Returns the errors
    /// of failed writes.
    pub fn flush(&self) -> Result<()> {
        syncfs(&self.root).map_err(Error::io("flush the filesystem at", &self.point))
    }

    /// The mount point of the filesystem.
    pub fn point(&self) -> &Path {
        &self.point
    }

    pub(crate) fn into_parts(self) -> (File, PathBuf) {
        (self.root, self.point)
    }
}
