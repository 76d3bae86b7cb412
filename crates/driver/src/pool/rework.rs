//! An image that is changed as a whole: a kill at any moment leaves it as it was before or as it is after.

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

/// Room for an undo file is asked for by this part of a volume. An estimate: a repair of much damage may overwrite more, and is
/// then taken back only in part if the disk fills up meanwhile.
const UNDO_SHARE: u64 = 256;

/// How long a change of any size takes to undo at the most.
const ROLL_BACK_LIMIT: Duration = Duration::from_secs(600);

impl Pool {
    /// Changes the filesystem in a volume's image, which nobody uses.
    ///
    /// Where copies share blocks, `work` is done on a copy, which then takes the image's place. Elsewhere it is done on the
    /// image itself, with a file that keeps what is overwritten.
    ///
    /// # Errors
    /// When the image is in use, or `work` fails; then the image is as it was.
    pub(crate) fn rework<T>(
        &self,
        image: &ImageLock<'_>,
        volume: &Volume,
        work: impl FnOnce(&Path, Option<&Path>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        image.ensure_detached("changed")?;
        self.roll_back(image, volume)?;
        let _change = image.change()?;
        // It may have been expanded while this call waited for the lock.
        let volume = self.volume(&volume.id)?;
        let backend = self.backend(volume.backend);
        match backend.instant() {
            true => self.rework_copy(&volume, backend, work),
            false => self.rework_in_place(&volume, work),
        }
    }

    /// Whether a change of the image is under way, or was cut short.
    pub(super) fn is_half_changed(&self, volume: &Volume) -> bool {
        !is_gone(&self.layout.undo(&volume.image))
    }

    /// Takes back a change that was cut short, if there was one.
    pub(super) fn restore_image(&self, volume: &Volume) -> Result<(), Error> {
        if !self.is_half_changed(volume) {
            return Ok(());
        }
        self.roll_back(&self.lock_image(volume)?, volume)
    }

    /// Takes back a change that was cut short. To be called before anything else is done to an image.
    ///
    /// # Errors
    /// When the image is in use, or e2undo fails. The image stays half changed then, and nothing may be done to it.
    pub(crate) fn roll_back(&self, image: &ImageLock<'_>, volume: &Volume) -> Result<(), Error> {
        if !self.is_half_changed(volume) {
            return Ok(());
        }
        image.ensure_detached("restored")?;
        let _change = image.change()?;
        let undo = self.layout.undo(&volume.image);
        undo::roll_back(&self.image(volume), &undo, ROLL_BACK_LIMIT).map_err(|error| {
            Error::Precondition(format!(
                "volume {} cannot be used: e2fsck or resize2fs was cut short in its image, and e2undo cannot take that back \
                 from {}: {}; mend that and call again, or delete the file and run `wharf driver pool repair {}`",
                volume.id,
                undo.display(),
                chain(&error),
                volume.id
            ))
        })?;
        tracing::warn!(volume = volume.id, "took back a change that was cut short");
        Ok(())
    }

    /// Takes back every change that was cut short; `settled` gets each volume and how it went.
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
        // The others belong to images that are gone, or are not the driver's.
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
        let (place, copy) = (self.image(volume), self.layout.in_the_making(&volume.image));
        remove(&copy)?;
        // Its space is taken when the image's own is free again.
        let shape = Shape { size: volume.capacity, thin: true };
        backend.copy(&place, &copy, shape, None)?;
        self.reach(Point::ReworkCopied)?;
        let done = work(&copy, None).inspect_err(|_| drop(remove(&copy)))?;
        self.reach(Point::ReworkDone)?;
        let points = [Point::ReworkMarked, Point::ReworkRenamed];
        // Limits may have been changed meanwhile.
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

    /// Refuses a change whose undo file may not fit: e2undo restores only a part of the image from a file that was cut.
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

    /// Gives a thick volume the space that it lacks. A copy does not have what was allocated and never written.
    pub(crate) fn ensure_allocated(&self, volume: &Volume) {
        let shape = Shape { size: volume.capacity, thin: volume.thin };
        let (backend, image) = (self.backend(volume.backend), self.image(volume));
        let Err(error) = backend.grow(&image, shape) else { return };
        // A full pool may refuse to allocate even what is allocated.
        if backend.footprint(&image).is_ok_and(|footprint| footprint.allocated >= shape.size) {
            return;
        }
        tracing::warn!(volume = volume.id, %error, "failed to allocate a thick volume whole");
    }

    fn image_of(&self, undo: &Path) -> PathBuf {
        self.layout.volume(&undo.file_stem().unwrap_or_default().to_string_lossy())
    }
}

/// Whether there is no such file. One that the disk cannot look at now may be there.
fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}
