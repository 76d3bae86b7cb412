//! A volume that stands still while its image is copied.

use std::time::Duration;

use wharf_mount::{freeze::Frozen, loopdev::HeldLoop, mounted::Mounted, mountinfo};

use super::Pool;
use crate::backend::Backend;
use crate::devices::CopyLock;
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
    ///
    /// # Errors
    /// When somebody else let it go on before: a copy of it is torn.
    pub(super) fn release(self) -> Result<(), Error> {
        let Some(frozen) = self.frozen else { return Ok(()) };
        let point = frozen.mount_point().to_owned();
        if frozen.thaw()? {
            return Ok(());
        }
        Err(Error::Pending(format!(
            "somebody thawed {} while its volume was copied: call again",
            point.display()
        )))
    }
}

impl Pool {
    /// Keeps a volume's image from being checked, repaired or grown while it is copied. A change of it that was cut short is
    /// taken back first.
    ///
    /// # Errors
    /// When such a change cannot be taken back, or another call changes the image for more than a minute.
    pub(super) fn lock_copy(&self, volume: &Volume) -> Result<CopyLock<'_>, Error> {
        loop {
            self.restore_image(volume)?;
            self.ensure_whole(volume)?;
            let lock = self.devices.lock_copy(&self.image(volume))?;
            // While nobody changes the image, an undo file is of a change that was cut short.
            if !self.is_half_changed(volume) {
                return Ok(lock);
            }
        }
    }

    /// The same for several volumes. No lock is held while an image is restored.
    pub(super) fn lock_copies(&self, volumes: &[&Volume]) -> Result<Vec<CopyLock<'_>>, Error> {
        loop {
            volumes.iter().try_for_each(|volume| self.restore_image(volume))?;
            volumes.iter().try_for_each(|volume| self.ensure_whole(volume))?;
            let lock = |volume: &&Volume| self.devices.lock_copy(&self.image(volume));
            let locks = volumes.iter().map(lock).collect::<Result<Vec<_>, _>>()?;
            if !volumes.iter().any(|volume| self.is_half_changed(volume)) {
                return Ok(locks);
            }
        }
    }

    /// Brings a volume to a state in which a copy of it alone can be taken.
    ///
    /// An instant copy falls between two writes. What is flushed before it is in it, and the filesystem in it is as a power
    /// cut would leave it: whole, once its journal is replayed. A freeze would add nothing but the time that writers stand
    /// still, three grace periods of the kernel (some 25 ms) at the least.
    pub(super) fn ready_to_copy(
        &self,
        lock: &CopyLock<'_>,
        volume: &Volume,
        backend: &dyn Backend,
    ) -> Result<Still, Error> {
        if !backend.instant() {
            return self.hold_still(lock, volume, backend);
        }
        self.flush(volume)?;
        Ok(Still::not_held())
    }

    /// Brings to the image what was written to a volume until now.
    pub(super) fn flush(&self, volume: &Volume) -> Result<(), Error> {
        let Some(device) = self.writable_device(volume)? else { return Ok(()) };
        match mounted(volume, &device)? {
            Some(filesystem) => Ok(filesystem.flush()?),
            None => Ok(device.flush()?),
        }
    }

    /// Brings a volume to a state that stays as it is until copies of it and of others are taken, asking the kernel how it is
    /// used: a mounted filesystem is frozen; a device in use, which nothing can hold still, is refused.
    pub(super) fn hold_still(
        &self,
        _lock: &CopyLock<'_>,
        volume: &Volume,
        backend: &dyn Backend,
    ) -> Result<Still, Error> {
        let Some(device) = self.writable_device(volume)? else {
            return Ok(Still::not_held());
        };
        let limit = (!backend.instant()).then_some(self.options.freeze_limit);
        if let Some(filesystem) = mounted(volume, &device)? {
            // Writers stand still only for what they write during this flush.
            filesystem.flush()?;
            let frozen = filesystem.freeze().map_err(|error| match error {
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

    fn writable_device(&self, volume: &Volume) -> Result<Option<HeldLoop>, Error> {
        self.devices.find_writable(&self.image(volume))
    }

    /// Lets a volume go on that a crash may have left frozen.
    pub(super) fn thaw(&self, volume: &Volume) -> Result<(), Error> {
        for device in self.devices.find(&self.image(volume))? {
            let Some(filesystem) = mounted(volume, &device)? else { continue };
            let point = filesystem.point().to_owned();
            if filesystem.thaw()? {
                tracing::warn!(volume = volume.id, mount = %point.display(), "thawed after a crash");
            }
        }
        Ok(())
    }
}

/// The filesystem on a volume's device, if it is mounted: where it is staged, or anywhere else.
fn mounted(volume: &Volume, device: &HeldLoop) -> Result<Option<Mounted>, Error> {
    let number = device.device_number()?;
    if let Some(stage) = &volume.stage
        && mountinfo::root_at(&stage.path)?.is_some_and(|root| root.device == number)
        && let Some(filesystem) = Mounted::of_device(&stage.path, number)?
    {
        return Ok(Some(filesystem));
    }
    for mount in mountinfo::of_device(number)? {
        // What is covered by another mount cannot be opened by its path.
        if let Some(filesystem) = Mounted::of_device(&mount.point, number)? {
            return Ok(Some(filesystem));
        }
    }
    Ok(None)
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
