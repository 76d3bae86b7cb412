//! A volume that stands still while its image is copied.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use wharf_mount::freeze::{self, Frozen};
use wharf_mount::loopdev::{self, Loop};
use wharf_mount::{mountinfo, sync};

use super::Pool;
use crate::backend::Backend;
use crate::error::Error;
use crate::record::Volume;

/// A volume that stands still until this is released or dropped.
#[derive(Debug)]
#[must_use = "the volume goes on when this is dropped"]
pub(super) struct Still {
    frozen: Option<Frozen>,
    limit: Option<Duration>,
}

impl Still {
    /// For a copy that is instant.
    pub(super) fn not_held() -> Self {
        Self { frozen: None, limit: None }
    }

    /// For how long the copy may take.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Lets the volume go on.
    pub(super) fn release(self) -> Result<(), Error> {
        self.frozen.map_or(Ok(()), |frozen| Ok(frozen.thaw()?))
    }
}

impl Pool {
    /// Brings a volume to a state in which a copy of it alone can be taken.
    ///
    /// An instant copy falls between two writes. What is flushed before it is in it, and the filesystem in it is as a power
    /// cut would leave it: whole, once its journal is replayed. A freeze would add nothing but the time that writers stand
    /// still, three grace periods of the kernel (some 25 ms) at the least.
    pub(super) fn ready_to_copy(
        &self,
        volume: &Volume,
        backend: &dyn Backend,
    ) -> Result<Still, Error> {
        if !backend.instant() {
            return self.hold_still(volume, backend);
        }
        self.flush(volume)?;
        Ok(Still::not_held())
    }

    /// Brings to the image what was written to a volume until now.
    pub(super) fn flush(&self, volume: &Volume) -> Result<(), Error> {
        let Some(device) = self.writable_loop(volume)? else { return Ok(()) };
        match mountinfo::of_device(loopdev::device_number(&device.path)?)?.first() {
            Some(mount) => Ok(sync::filesystem(&mount.point)?),
            None => flush(&device),
        }
    }

    /// Brings a volume to a state that stays as it is until copies of it and of others are taken, asking the kernel how it is
    /// used: a mounted filesystem is frozen; a device in use, which nothing can hold still, is refused.
    pub(super) fn hold_still(
        &self,
        volume: &Volume,
        backend: &dyn Backend,
    ) -> Result<Still, Error> {
        let Some(device) = self.writable_loop(volume)? else {
            return Ok(Still::not_held());
        };
        let mounts = mountinfo::of_device(loopdev::device_number(&device.path)?)?;
        let limit = (!backend.instant()).then_some(self.options.freeze_limit);
        if let Some(mount) = mounts.first() {
            // Writers stand still only for what they write during this flush.
            sync::filesystem(&mount.point)?;
            let frozen = freeze::freeze(&mount.point).map_err(|error| match error {
                wharf_mount::Error::Busy { .. } => Error::Pending(format!(
                    "volume {} is being copied already: call again",
                    volume.id
                )),
                error => error.into(),
            })?;
            return Ok(Still { frozen: Some(frozen), limit });
        }
        Err(Error::Precondition(format!(
            "volume {} is in use as a block device, which cannot be held still: unpublish it first, or take a snapshot of \
             it alone on a pool with reflinks, where that is instant",
            volume.id
        )))
    }

    fn writable_loop(&self, volume: &Volume) -> Result<Option<Loop>, Error> {
        Ok(self.loops(volume)?.into_iter().find(|device| !device.read_only))
    }

    /// Lets a volume go on that a crash may have left frozen.
    pub(super) fn thaw(&self, volume: &Volume) -> Result<(), Error> {
        for device in self.loops(volume)? {
            for mount in mountinfo::of_device(loopdev::device_number(&device.path)?)? {
                if freeze::thaw(&mount.point)? {
                    tracing::warn!(volume = volume.id, mount = %mount.point.display(), "thawed after a crash");
                }
            }
        }
        Ok(())
    }

    /// The loop devices of a volume's image, by the kernel's word.
    pub(crate) fn loops(&self, volume: &Volume) -> Result<Vec<Loop>, Error> {
        match std::fs::metadata(self.image(volume)) {
            Ok(image) => {
                let mut loops = loopdev::find(image.dev(), image.ino())?;
                // Someone still has it open after its detach: it is gone as soon as they close it.
                loops.retain(|device| !device.clearing);
                Ok(loops)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::file("look at image", self.image(volume))(error)),
        }
    }
}

fn flush(device: &Loop) -> Result<(), Error> {
    let flushed = File::open(&device.path).and_then(|device| device.sync_all());
    flushed.map_err(Error::file("flush", &device.path))
}

/// What a copy that took too long means to the one who asked for it.
pub(super) fn too_slow(error: Error, volume: &str, limit: Option<Duration>) -> Error {
    match (error, limit) {
        (Error::Mount(wharf_mount::Error::Stopped { .. }), Some(limit)) => {
            Error::Precondition(format!(
                "volume {volume} is mounted and its copy takes longer than the {limit:?} for which it may stand still: unpublish \
             it first, or keep it on a pool with reflinks, where a copy is instant"
            ))
        }
        (error, _) => error,
    }
}
