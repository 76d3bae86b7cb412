//! A filesystem that holds still.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::{Error, Result, mounted::Mounted, sys};

/// A frozen filesystem; thawed when this is dropped, also by a panic.
///
/// A process that is killed leaves it frozen: [`thaw`] what may be at the next start.
#[derive(Debug)]
#[must_use = "the filesystem is thawed as soon as this is dropped"]
pub struct Frozen {
    /// None once it is thawed.
    root: Option<File>,
    mount_point: PathBuf,
}

/// Flushes the filesystem mounted at `mount_point` and stops all writes to it, as [`Mounted::freeze`].
pub fn freeze(mount_point: &Path) -> Result<Frozen> {
    Mounted::any(mount_point)?.freeze()
}

/// Thaws the filesystem mounted at `mount_point`, whoever froze it; false if it was not frozen.
pub fn thaw(mount_point: &Path) -> Result<bool> {
    Mounted::any(mount_point)?.thaw()
}

impl Mounted {
    /// Flushes the filesystem and stops all writes to it.
    ///
    /// Blocks for as long as the flush takes, which on a broken disk is for ever: run it on a thread that
    /// may be lost. Writers wait inside the kernel, unkillably, until it is thawed. [`Error::Busy`] if it
    /// is already frozen.
    pub fn freeze(self) -> Result<Frozen> {
        let (root, mount_point) = self.into_parts();
        match sys::fs::freeze(&root) {
            Ok(()) => Ok(Frozen { root: Some(root), mount_point }),
            Err(Errno::BUSY) => Err(Error::Busy { operation: "freeze", path: mount_point }),
            Err(Errno::OPNOTSUPP) => Err(Error::Unsupported {
                operation: "freezing",
                path: mount_point,
                source: Errno::OPNOTSUPP.into(),
            }),
            Err(errno) => Err(Error::io("freeze", mount_point)(errno)),
        }
    }

    /// Thaws the filesystem, whoever froze it; false if it was not frozen.
    pub fn thaw(self) -> Result<bool> {
        let (root, mount_point) = self.into_parts();
        thaw_root(&root, &mount_point)
    }
}

impl Frozen {
    /// Thaws it; false if somebody else has thawed it before, so that it did not stand still all the time.
    pub fn thaw(mut self) -> Result<bool> {
        self.root.take().map_or(Ok(false), |root| thaw_root(&root, &self.mount_point))
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let Some(root) = self.root.take() else { return };
        if let Err(error) = thaw_root(&root, &self.mount_point) {
            tracing::error!(mount_point = ?self.mount_point, ?error, "filesystem stays frozen");
        }
    }
}

fn thaw_root(root: &File, mount_point: &Path) -> Result<bool> {
    match sys::fs::thaw(root) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(Error::io("thaw", mount_point)(errno)),
    }
}
