//! Notes of the volumes that are attached on the node, for a teardown without their pool.

use super::NodeVolumes;
use crate::{error::Error, record::Volume, state_dir::AttachedImage};

impl NodeVolumes {
    /// Notes that a volume's image is about to be attached. Called with the image locked, after the last change of its file.
    pub(super) fn note_attached(&self, volume: &Volume) -> Result<(), Error> {
        match self.pool.devices().identity_of(&self.pool.image(volume))? {
            Some(file) => self.keep_note(volume, file),
            None => Ok(()),
        }
    }

    /// Removes the note of a volume that has no device any more.
    pub(super) fn forget_attached(&self, volume: &Volume) -> Result<(), Error> {
        if self.pool.devices().find(&self.pool.image(volume))?.is_empty() {
            self.attached.remove(&volume.image);
        }
        Ok(())
    }

    /// Brings the notes to what the start of the pool found: an older release made none, and a kill leaves one too many.
    ///
    /// # Errors
    /// When the kernel cannot be asked, or a note cannot be written.
    pub fn compare_attached(&self) -> Result<(), Error> {
        let all: Vec<_> = self.pool.store().read(|state| state.volumes.iter().cloned().collect());
        for volume in &all {
            match self.pool.devices().find(&self.pool.image(volume))?.first() {
                // The kernel does not say which file of a dead disk it was.
                Some(device) if device.identity() == (0, 0) => {}
                Some(device) => self.keep_note(volume, device.identity())?,
                None => self.attached.remove(&volume.image),
            }
        }
        Ok(())
    }

    fn keep_note(&self, volume: &Volume, (device, inode): (u64, u64)) -> Result<(), Error> {
        let (pool, image) = (self.pool.id(), volume.image.clone());
        self.attached.keep(AttachedImage { volume: volume.id.clone(), pool, image, device, inode })
    }
}
