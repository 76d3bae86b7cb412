//! Names and data that are on disk.

use std::fs::File;
use std::path::Path;

use rustix::fs::fstatfs;

use crate::{Error, Result};

/// Flushes a folder: files made, renamed and removed in it stay so after a crash.
pub fn folder(path: &Path) -> Result<()> {
    let folder = File::open(path).map_err(Error::io("open", path))?;
    folder.sync_all().map_err(Error::io("flush", path))
}

/// Whether flushing `file` also flushes a rename that gave it its name.
///
/// So it is on XFS: a rename changes the inode and the folders in one transaction, and to flush the inode is to write the
/// log up to there. Elsewhere a name is on disk when its folder was flushed.
pub fn keeps_its_name(file: &File, path: &Path) -> Result<bool> {
    const XFS: i64 = 0x5846_5342;
    let filesystem = fstatfs(file).map_err(Error::io("look at the filesystem of", path))?;
    Ok(filesystem.f_type == XFS)
}
