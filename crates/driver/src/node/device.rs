//! The loop devices of a volume: at most one that writes and one that only reads.

use std::fs::File;
use std::sync::PoisonError;

use wharf_mount::loopdev::{self, Loop, LoopOptions};

use super::NodeVolumes;
use crate::error::Error;
use crate::record::Volume;

/// Every device has it, since a filesystem made for a smaller one cannot be mounted from a larger: direct I/O to an image
/// that shares blocks is in blocks of the pool, and the kernel's own choice would change with the first snapshot.
const BLOCK_SIZE: u32 = 4096;

impl NodeVolumes {
    /// The volume's device, attached if it is not.
    pub(super) fn attach(&self, volume: &Volume, read_only: bool) -> Result<Loop, Error> {
        let _alone = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = self.attached(volume, read_only)? {
            return Ok(device);
        }
        let path = self.pool.image(volume);
        let image = File::options().read(true).write(!read_only).open(&path);
        let image = image.map_err(Error::file("open image", &path))?;
        let options = LoopOptions { read_only, direct_io: true, block_size: Some(BLOCK_SIZE) };
        let device = loopdev::attach(&image, &options)?;
        if !device.direct_io {
            tracing::warn!(volume = volume.id, device = %device.path.display(),
                "the pool's filesystem refuses direct I/O: the volume's data is cached twice");
        }
        Ok(device)
    }

    /// The volume's device, if it is attached.
    pub(super) fn attached(&self, volume: &Volume, read_only: bool) -> Result<Option<Loop>, Error> {
        Ok(self.pool.loops(volume)?.into_iter().find(|device| device.read_only == read_only))
    }

    /// Detaches the volume's device.
    pub(super) fn detach(&self, volume: &Volume, read_only: bool) -> Result<(), Error> {
        for device in self.pool.loops(volume)? {
            if device.read_only == read_only {
                loopdev::detach(&device)?;
            }
        }
        Ok(())
    }
}
