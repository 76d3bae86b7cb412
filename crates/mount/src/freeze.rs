//! Freezes and thaws mounted filesystems.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::{Error, Result, mounted::Mounted, sys};

/// A frozen filesystem. Dropping it thaws the filesystem, also during a panic.
///
/// A killed process leaves the filesystem frozen: call [`thaw`] at the next start.
#[derive(Debug)]
#[must_use = "dropping this thaws the filesystem"]
pub struct Frozen {
    /// `None` once the filesystem is thawed.
    root: Option<File>,
    mount_point: PathBuf,
}

/// Flushes and freezes the filesystem mounted at `mount_point`: see [`Mounted::freeze`].
pub fn freeze(mount_point: &Path) -> Result<Frozen> {
    Mounted::any(mount_point)?.freeze()
}

/// Thaws the filesystem mounted at `mount_point`, even if another process froze it. Returns false
/// if it was not frozen.
pub fn thaw(mount_point: &Path) -> Result<bool> {
    Mounted::any(mount_point)?.thaw()
}

impl Mounted {
    /// Flushes the filesystem and blocks all writes to it.
    ///
    /// Blocks until the flush ends, which on a broken disk is never: call it on a thread that may
    /// be lost. Writers wait in the kernel, unkillable, until the filesystem is thawed. Fails with
    /// [`Error::Busy`] if it is already frozen.
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

    /// Thaws the filesystem, even if another process froze it. Returns false if it was not frozen.
    pub fn thaw(self) -> Result<bool> {
        let (root, mount_point) = self.into_parts();
        thaw_root(&root, &mount_point)
    }
}

impl Frozen {
    /// Thaws the filesystem. Returns false if another process thawed it before, so that writes may
    /// have happened meanwhile.
    pub fn thaw(mut self) -> Result<bool> {
        self.root.take().map_or(Ok(false), |root| thaw_root(&root, &self.mount_point))
    }

    /// The mount point of the filesystem.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let Some(root) = self.root.take() else { return };
        if let Err(error) = thaw_root(&root, &self.mount_point) {
            tracing::error!(mount_point = ?self.mount_point, ?error, "failed to thaw filesystem");
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
