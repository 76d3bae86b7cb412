//! Notes of attached volumes, for a teardown when their pool is not served.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use wharf_mount::loopdev;

use super::NodeVolumes;
use crate::{
    error::Error,
    record::Volume,
    state_dir::{AttachedImage, image_of},
};

impl NodeVolumes {
    /// Notes that a volume's image is about to be attached. Call it with the image locked, after
    /// the last change of its file.
    pub(super) fn note_attached(&self, volume: &Volume) -> Result<(), Error> {
        match self.pool.devices().identity_of(&self.pool.image(volume))? {
            Some(file) => self.keep_note(volume, file),
            None => Ok(()),
        }
    }

    /// Deletes a volume and the notes of its image, also if other processes closed its device last.
    ///
    /// # Errors
    /// If the volume is in use, or the disk fails.
    pub fn delete_volume(&self, id: &str) -> Result<(), Error> {
        self.pool.delete_volume(id)?;
        let pool = self.pool.id();
        self.attached.remove_where(|note| note.volume == id && note.pool == pool);
        Ok(())
    }

    /// Removes the notes of a volume that has no device left.
    pub(super) fn forget_attached(&self, volume: &Volume) -> Result<(), Error> {
        if self.pool.devices().find(&self.pool.image(volume))?.is_empty() {
            self.attached.remove(&volume.image);
        }
        Ok(())
    }

    /// Finds devices that were attached for volumes of this pool before its disk came back under
    /// another device number. Call it before any other operation on the pool.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    pub fn find_old_devices(&self) -> Result<(), Error> {
        if self.attached.of_pool(self.pool.id()).is_empty() {
            return Ok(());
        }
        let images: HashMap<String, PathBuf> = self.pool.store().read(|state| {
            let image = |volume: &Arc<Volume>| (volume.image.clone(), self.pool.image(volume));
            state.volumes.iter().map(image).collect()
        });
        let is_own = |backing: &Path| image_of(backing).is_some_and(|it| images.contains_key(&it));
        for device in loopdev::list_asking(is_own)?.into_iter().map(|status| status.loopdev) {
            let note = self.attached.of_device(&device);
            if let Some(image) = note.and_then(|note| images.get(&note.image))
                && !self.pool.devices().shows(image, &device)
            {
                self.pool.devices().add_old(image, &device);
            }
        }
        Ok(())
    }

    /// Updates the notes to the devices found when the pool was opened: an older release wrote no
    /// notes, and a kill may leave a stale one.
    ///
    /// # Errors
    /// If the kernel cannot be queried, or a note cannot be written.
    pub fn compare_attached(&self) -> Result<(), Error> {
        let all: Vec<_> = self.pool.store().read(|state| state.volumes.iter().cloned().collect());
        for volume in &all {
            for device in self.pool.devices().find(&self.pool.image(volume))? {
                // The kernel does not report the file of a dead disk.
                if device.identity() != (0, 0) {
                    self.keep_note(volume, device.identity())?;
                }
            }
        }
        let is_own = |backing: &Path| {
            image_of(backing).is_some_and(|it| all.iter().any(|own| own.image == it))
        };
        let devices = loopdev::list_asking(is_own)?.into_iter().map(|status| status.loopdev);
        let attached: Vec<_> =
            devices.filter_map(|device| self.attached.of_device(&device)).collect();
        let pool = self.pool.id();
        self.attached.remove_where(|note| note.pool == pool && !attached.contains(note));
        Ok(())
    }

    fn keep_note(&self, volume: &Volume, (device, inode): (u64, u64)) -> Result<(), Error> {
        let (pool, image) = (self.pool.id(), volume.image.clone());
        self.attached.keep(AttachedImage { volume: volume.id.clone(), pool, image, device, inode })
    }
}
