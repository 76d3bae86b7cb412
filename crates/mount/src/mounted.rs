//! A mounted filesystem, held by its root.

use std::{
    fs::File,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::syncfs;

use crate::{Error, Result};

/// A mounted filesystem whose root this process holds open: whatever is mounted over it or in its place meanwhile, what is
/// done here is done to this filesystem.
#[derive(Debug)]
pub struct Mounted {
    root: File,
    point: PathBuf,
}

impl Mounted {
    /// Whatever filesystem is at `point`.
    pub fn any(point: &Path) -> Result<Self> {
        let root = File::open(point).map_err(Error::io("open", point))?;
        Ok(Self { root, point: point.to_owned() })
    }

    /// The filesystem on the device with the number `rdev`; `None` if it is not the one at `point`.
    pub fn of_device(point: &Path, rdev: u64) -> Result<Option<Self>> {
        let found = match File::open(point) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            root => root.map_err(Error::io("open", point))?,
        };
        let found = Self { root: found, point: point.to_owned() };
        let metadata = found.root.metadata().map_err(Error::io("look at", point))?;
        Ok((metadata.dev() == rdev).then_some(found))
    }

    /// Flushes all that was written to the filesystem so far. Writers go on meanwhile.
    ///
    /// Blocks for as long as the disk takes, which may be for ever on a broken one. Fails for what could not be written.
    pub fn flush(&self) -> Result<()> {
        syncfs(&self.root).map_err(Error::io("flush the filesystem at", &self.point))
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    pub(crate) fn into_parts(self) -> (File, PathBuf) {
        (self.root, self.point)
    }
}
