//! Names and data that are on disk.

use std::fs::File;
use std::path::Path;

use rustix::fs::syncfs;

use crate::{Error, Result};

/// Flushes a folder: files made, renamed and removed in it stay so after a crash.
pub fn folder(path: &Path) -> Result<()> {
    let folder = File::open(path).map_err(Error::io("open", path))?;
    folder.sync_all().map_err(Error::io("flush", path))
}

/// Flushes the filesystem that `path` is on: all that was written to it so far. Writers go on meanwhile.
///
/// Blocks for as long as the disk takes, which may be for ever on a broken one. Fails for what could not be written.
pub fn filesystem(path: &Path) -> Result<()> {
    let any = File::open(path).map_err(Error::io("open", path))?;
    syncfs(&any).map_err(Error::io("flush the filesystem at", path))
}
