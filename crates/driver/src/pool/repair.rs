//! Repairs a volume's filesystem at a person's request.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use wharf_mount::{
    Filesystem, check,
    probe::{self, Signature},
};

use super::{Pool, now, remove, volumes::deletable};
use crate::{
    backend::{BackendKind, Shape},
    error::Error,
    files,
    record::Volume,
};

/// Result of a repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repaired {
    /// Copy of the image before the repair.
    pub kept: PathBuf,
    /// The end of the program's report.
    pub report: String,
}

impl Pool {
    /// Repairs the filesystem of a volume that is not in use. Keeps a copy of the old image in
    /// quarantine.
    ///
    /// # Errors
    /// If the volume is in use or has no filesystem, there is no space for the copy, or the program
    /// fails; then the image is unchanged.
    pub fn repair(&self, id: &str, limit: Duration) -> Result<Repaired, Error> {
        let image = self.lock_image(&*self.whole_volume(id)?)?;
        // Read it again under the lock: the volume may have been staged or expanded meanwhile.
        let volume = self.whole_volume(id)?;
        deletable(&volume)?;
        self.refuse_unsharing(&volume)?;
        image.ensure_detached("repaired")?;
        self.roll_back(&image, &volume)?;
        let filesystem = self.filesystem_of(&volume)?;
        let kept = self.layout.quarantine().join(format!("{}-before-{}.img", volume.image, now()));
        let shape = Shape { size: volume.capacity, thin: true };
        // Copy without sharing blocks: a shared copy would take the volume's promised space when
        // the volume is overwritten.
        let copied =
            self.backend(BackendKind::ImageCopy).copy(&self.image(&volume), &kept, shape, None);
        copied.inspect_err(|_| drop(remove(&kept)))?;
        let repaired = self.rework(&image, &volume, |path, undo| {
            Ok(check::repair(filesystem, path, undo, limit)?)
        });
        let report = repaired.inspect_err(|_| {
            // The image is unchanged, so its copy is useless.
            if !self.is_half_changed(&volume) {
                drop(remove(&kept));
            }
        })?;
        Ok(Repaired { kept, report })
    }

    fn filesystem_of(&self, volume: &Volume) -> Result<Filesystem, Error> {
        let path = self.image(volume);
        let image = files::open(&path).map_err(Error::file("open image", &path))?;
        if let crate::record::Content::Filesystem(filesystem) = volume.content {
            // The record also knows the filesystem of a destroyed superblock.
            return Ok(filesystem);
        }
        match probe::probe(&image)? {
            Signature::Ext4(_) => Ok(Filesystem::Ext4),
            Signature::Xfs(_) => Ok(Filesystem::Xfs),
            other => Err(Error::Precondition(format!(
                "volume {} holds {other}: only ext4 and xfs are repaired",
                volume.id
            ))),
        }
    }
}
