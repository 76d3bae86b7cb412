//! Repair of a volume's filesystem, when a person asks for it.

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

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repaired {
    /// The image as it was before.
    pub kept: PathBuf,
    /// The end of the program's report.
    pub report: String,
}

impl Pool {
    /// Repairs the filesystem of a volume that nobody uses. A copy of the image as it was is kept in quarantine.
    ///
    /// # Errors
    /// When the volume is in use or holds no filesystem, there is no room for the copy, or the program fails; then the image
    /// is as it was.
    pub fn repair(&self, id: &str, limit: Duration) -> Result<Repaired, Error> {
        let image = self.lock_image(&*self.whole_volume(id)?)?;
        // Read again under the lock: the volume may have been staged or expanded meanwhile.
        let volume = self.whole_volume(id)?;
        deletable(&volume)?;
        self.refuse_unsharing(&volume)?;
        image.ensure_detached("repaired")?;
        self.roll_back(&image, &volume)?;
        let filesystem = self.filesystem_of(&volume)?;
        let kept = self.layout.quarantine().join(format!("{}-before-{}.img", volume.image, now()));
        let shape = Shape { size: volume.capacity, thin: true };
        // A copy that shared blocks would take the volume's promised space when the volume is overwritten.
        let copied =
            self.backend(BackendKind::ImageCopy).copy(&self.image(&volume), &kept, shape, None);
        copied.inspect_err(|_| drop(remove(&kept)))?;
        let repaired = self.rework(&image, &volume, |path, undo| {
            Ok(check::repair(filesystem, path, undo, limit)?)
        });
        let report = repaired.inspect_err(|_| {
            // The image is as it was: a copy of it would only take space.
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
            // The record knows it also where the superblock is gone.
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
