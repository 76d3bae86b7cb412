//! Checks, creates and removes target paths.

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::Path,
};

use super::NodeVolumes;
use crate::{
    error::Error,
    record::{Access, Volume},
};

impl NodeVolumes {
    /// Refuses a target that shows something else or could not be removed later. Called before
    /// anything is recorded, so that a refused publish has nothing to undo.
    ///
    /// # Errors
    /// If the target exists and is neither empty nor a mount of the volume.
    pub(super) fn refuse_foreign_target(
        &self,
        volume: Option<&Volume>,
        target: &Path,
        access: &Access,
    ) -> Result<(), Error> {
        if self.is_ours(volume, target)? {
            return Ok(());
        }
        let there = match fs::symlink_metadata(target) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            there => there.map_err(Error::file("look at target", target))?,
        };
        let (expected, fits) = match access {
            Access::Mount { .. } => ("an empty folder", there.is_dir() && is_empty(target)?),
            Access::Block => ("an empty file", there.is_file() && there.len() == 0),
        };
        if fits {
            return Ok(());
        }
        Err(Error::Precondition(format!(
            "target {} is not {expected}: foreign files are not hidden or removed; move it away",
            target.display()
        )))
    }
}

/// Refuses a staging path whose content a mount would hide: it may be any folder of the node.
pub(super) fn refuse_full_folder(path: &Path) -> Result<(), Error> {
    if path.is_dir() && !is_empty(path)? {
        return Err(Error::Precondition(format!(
            "staging path {} is not an empty folder: foreign files are not hidden; move its content away",
            path.display()
        )));
    }
    Ok(())
}

fn is_empty(folder: &Path) -> Result<bool, Error> {
    let mut entries = fs::read_dir(folder).map_err(Error::file("list target", folder))?;
    Ok(entries.next().is_none())
}

/// Creates the target: a folder for a filesystem, a file for a device.
pub(super) fn make_target(target: &Path, access: &Access) -> Result<(), Error> {
    let made = match access {
        Access::Mount { .. } => fs::create_dir(target),
        Access::Block => File::options().write(true).create_new(true).open(target).map(drop),
    };
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(Error::file("create target", target)(error))
        }
        _ => Ok(()),
    }
}

/// Removes the target, never its content. A target that is not empty is not the driver's, and
/// stays.
pub(crate) fn remove_target(target: &Path) -> Result<(), Error> {
    let removed = match fs::symlink_metadata(target) {
        Ok(there) if there.is_dir() => fs::remove_dir(target),
        Ok(there) if there.is_file() && there.len() == 0 => fs::remove_file(target),
        Ok(_) => Err(ErrorKind::DirectoryNotEmpty.into()),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            tracing::warn!(target_path = %target.display(), "kept target that is not empty");
            Ok(())
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::file("remove target", target)(error))
        }
        _ => Ok(()),
    }
}
