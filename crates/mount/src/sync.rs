//! Flushes folders and files.

use std::{fs::File, path::Path};

use rustix::fs::fstatfs;

use crate::{Error, Result};

/// Flushes a folder, so that files created, renamed and removed in it survive a crash.
pub fn folder(path: &Path) -> Result<()> {
    let folder = File::open(path).map_err(Error::io("open", path))?;
    folder.sync_all().map_err(Error::io("flush", path))
}

/// Whether flushing `file` also flushes the rename that gave it its name.
///
/// True on XFS: a rename changes the inode and the folders in one transaction, and flushing the
/// inode writes the log up to that transaction. On other filesystems the folder must be flushed.
pub fn keeps_its_name(file: &File, path: &Path) -> Result<bool> {
    const XFS: i64 = 0x5846_5342;
    let filesystem = fstatfs(file).map_err(Error::io("look at the filesystem of", path))?;
    Ok(filesystem.f_type == XFS)
}
