//! Atomic changes of an image by programs: after a kill at any moment the image is either old or
//! new.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use wharf_mount::{sync, undo};

use super::{Mark, Pool, recover::entries, remove};
use crate::{
    backend::{Backend, Shape},
    devices::ImageLock,
    error::{Error, chain},
    points::Point,
    record::Volume,
};

/// An undo file is estimated at this fraction of a volume. A repair of heavy damage may need more,
/// and can then be undone only partly if the disk fills up.
const UNDO_SHARE: u64 = 256;

/// Timeout of undoing a change.
const ROLL_BACK_LIMIT: Duration = Duration::from_secs(600);

impl Pool {
    /// Changes the filesystem in the image of a volume that is not in use.
    ///
    /// If copies share blocks, `work` runs on a copy, which then replaces the image. Otherwise it
    /// runs on the image, with an undo file.
    ///
    /// # Errors
    /// If the image is in use, or `work` fails; then the image is unchanged.
    pub(crate) fn rework<T>(
        &self,
        image: &ImageLock<'_>,
        volume: &Volume,
        work: impl FnOnce(&Path, Option<&Path>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        image.ensure_detached("changed")?;
        self.roll_back(image, volume)?;
        let _change = image.change()?;
        // The volume may have been expanded while this call waited for the lock.
        let volume = self.volume(&volume.id)?;
        let backend = self.backend(volume.backend);
        match backend.instant() {
            true => self.rework_copy(&volume, backend, work),
            false => self.rework_in_place(&volume, work),
        }
    }

    /// Whether a change of the image is running, or was interrupted.
    pub(super) fn is_half_changed(&self, volume: &Volume) -> bool {
        !is_gone(&self.layout.undo(&volume.image))
    }

    /// Undoes an interrupted change, if there was one.
    pub(super) fn restore_image(&self, volume: &Volume) -> Result<(), Error> {
        if !self.is_half_changed(volume) {
            return Ok(());
        }
        self.roll_back(&self.lock_image(volume)?, volume)
    }

    /// Undoes an interrupted change. Call it before any other operation on an image.
    ///
    /// # Errors
    /// If the image is in use, or e2undo fails. Then the image is partly changed and must not be
    /// used.
    pub(crate) fn roll_back(&self, image: &ImageLock<'_>, volume: &Volume) -> Result<(), Error> {
        if !self.is_half_changed(volume) {
            return Ok(());
        }
        image.ensure_detached("restored")?;
        let _change = image.change()?;
        let undo = self.layout.undo(&volume.image);
        undo::roll_back(&self.image(volume), &undo, ROLL_BACK_LIMIT).map_err(|error| {
            Error::Precondition(format!(
                "volume {} cannot be used: e2fsck or resize2fs was interrupted on its image, and e2undo cannot undo that \
                 from {}: {}; fix that and call again, or delete the file and run `wharf driver pool repair {}`",
                volume.id,
                undo.display(),
                chain(&error),
                volume.id
            ))
        })?;
        tracing::warn!(volume = volume.id, "undid interrupted change of volume");
        Ok(())
    }

    /// Undoes all interrupted changes; `settled` is called with each volume and the result.
    pub(super) fn roll_back_all(
        &self,
        mut settled: impl FnMut(&str, Result<(), Error>),
    ) -> Result<(), Error> {
        let found = entries(&self.layout.undo_folder())?;
        let volumes: Vec<_> = self.store.read(|state| state.volumes.iter().cloned().collect());
        for volume in volumes {
            if found.contains(&self.layout.undo(&volume.image)) {
                let back = self.lock_image(&volume).and_then(|it| self.roll_back(&it, &volume));
                settled(&volume.id, back);
            }
        }
        // The other undo files belong to deleted images, or are foreign.
        for undo in entries(&self.layout.undo_folder())? {
            if undo.extension().is_some_and(|end| end == "e2undo") && is_gone(&self.image_of(&undo))
            {
                self.clear_away(&undo);
            }
        }
        Ok(())
    }

    fn rework_copy<T>(
        &self,
        volume: &Volume,
        backend: &dyn Backend,
        work: impl FnOnce(&Path, Option<&Path>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (place, copy) = (self.image(volume), self.layout.partial_image(&volume.image));
        remove(&copy)?;
        // A thin copy: its space is allocated when the image's own is freed.
        let shape = Shape { size: volume.capacity, thin: true };
        backend.copy(&place, &copy, shape, None)?;
        self.reach(Point::ReworkCopied)?;
        let done = work(&copy, None).inspect_err(|_| drop(remove(&copy)))?;
        self.reach(Point::ReworkDone)?;
        let points = [Point::ReworkMarked, Point::ReworkRenamed];
        // The limits may have changed meanwhile.
        let mark = Mark::volume(&*self.volume(&volume.id)?);
        self.put_in_place(&mark, &copy, &place, backend, points)?;
        Ok(done)
    }

    fn rework_in_place<T>(
        &self,
        volume: &Volume,
        work: impl FnOnce(&Path, Option<&Path>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.ensure_room_to_undo(volume)?;
        let done = work(&self.image(volume), Some(&self.layout.undo(&volume.image)))?;
        sync::folder(&self.layout.undo_folder())?;
        Ok(done)
    }

    /// Refuses a change whose undo file may not fit: from an incomplete file e2undo restores the
    /// image only partly.
    fn ensure_room_to_undo(&self, volume: &Volume) -> Result<(), Error> {
        let needed = (volume.capacity / UNDO_SHARE).clamp(8 << 20, 1 << 30);
        let available = wharf_mount::space::usage(self.layout.root())?.available;
        if available >= needed {
            return Ok(());
        }
        let text = format!(
            "the pool's disk has {available} bytes left, and {needed} are needed: delete volumes, snapshots or what else is \
             on the disk"
        );
        let source = io::Error::new(io::ErrorKind::StorageFull, text);
        Err(Error::file("find room to undo a change of", self.image(volume))(source))
    }

    /// Allocates missing blocks of a thick volume. A copy lacks blocks that were allocated but
    /// never written.
    pub(crate) fn ensure_allocated(&self, volume: &Volume) {
        let shape = Shape { size: volume.capacity, thin: volume.thin };
        let (backend, image) = (self.backend(volume.backend), self.image(volume));
        let Err(error) = backend.grow(&image, shape) else { return };
        // A full pool may refuse to allocate blocks that are allocated already.
        if backend.footprint(&image).is_ok_and(|footprint| footprint.allocated >= shape.size) {
            return;
        }
        tracing::warn!(volume = volume.id, %error, "failed to allocate all blocks of thick volume");
    }

    fn image_of(&self, undo: &Path) -> PathBuf {
        self.layout.volume(&undo.file_stem().unwrap_or_default().to_string_lossy())
    }
}

/// Whether the file does not exist. If the disk cannot tell, it may exist.
fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}
