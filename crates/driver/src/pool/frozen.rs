//! Freezes or flushes a volume so that its image can be copied consistently.

use std::time::Duration;

use wharf_mount::{freeze::Frozen, loopdev::HeldLoop, mounted::Mounted, mountinfo};

use super::Pool;
use crate::{backend::Backend, devices::CopyLock, error::Error, record::Volume};

/// A volume whose filesystem stays frozen until this is released or dropped; not frozen if the copy
/// is instant.
#[derive(Debug)]
#[must_use = "dropping this thaws the volume"]
pub(super) struct FrozenVolume {
    frozen: Option<Frozen>,
    limit: Option<Duration>,
}

impl FrozenVolume {
    /// For a copy that is instant.
    pub(super) fn not_frozen() -> Self {
        Self { frozen: None, limit: None }
    }

    /// Maximum duration of the copy.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Thaws the volume.
    ///
    /// # Errors
    /// If another process thawed it before: its copy is inconsistent.
    pub(super) fn release(self) -> Result<(), Error> {
        let Some(frozen) = self.frozen else { return Ok(()) };
        let point = frozen.mount_point().to_owned();
        if frozen.thaw()? {
            return Ok(());
        }
        Err(Error::Pending(format!(
            "another process thawed {} while its volume was copied: call again",
            point.display()
        )))
    }
}

impl Pool {
    /// Locks a volume's image for copying, against checks, repairs and growth. Undoes an
    /// interrupted change of the image first.
    ///
    /// # Errors
    /// If such a change cannot be undone, or another call changes the image for more than a minute.
    pub(super) fn lock_copy(&self, volume: &Volume) -> Result<CopyLock<'_>, Error> {
        loop {
            self.restore_image(volume)?;
            self.ensure_whole(volume)?;
            let lock = self.devices.lock_copy(&self.image(volume))?;
            // No call changes the image now, so an undo file is left from an interrupted change.
            if !self.is_half_changed(volume) {
                return Ok(lock);
            }
        }
    }

    /// Like [`Self::lock_copy`] for several volumes. Holds no lock while an image is restored.
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

    /// Prepares a volume for a copy of it alone.
    ///
    /// An instant copy falls between two writes. It has everything that was flushed before, and its
    /// filesystem is in the state after a power cut: consistent once its journal is replayed. A
    /// freeze would add nothing but a pause of its writers, at least three grace periods of the
    /// kernel (some 25 ms).
    pub(super) fn prepare_copy(
        &self,
        lock: &CopyLock<'_>,
        volume: &Volume,
        backend: &dyn Backend,
    ) -> Result<FrozenVolume, Error> {
        if !backend.instant() {
            return self.freeze_for_copy(lock, volume, backend);
        }
        self.flush(volume)?;
        Ok(FrozenVolume::not_frozen())
    }

    /// Flushes everything written to a volume so far to its image.
    pub(super) fn flush(&self, volume: &Volume) -> Result<(), Error> {
        let Some(device) = self.writable_device(volume)? else { return Ok(()) };
        match mounted(volume, &device)? {
            Some(filesystem) => Ok(filesystem.flush()?),
            None => Ok(device.flush()?),
        }
    }

    /// Freezes a volume until copies of it and other volumes are made. A mounted filesystem is
    /// frozen; a block device in use cannot be, and is refused.
    pub(super) fn freeze_for_copy(
        &self,
        _lock: &CopyLock<'_>,
        volume: &Volume,
        backend: &dyn Backend,
    ) -> Result<FrozenVolume, Error> {
        let Some(device) = self.writable_device(volume)? else {
            return Ok(FrozenVolume::not_frozen());
        };
        let limit = (!backend.instant()).then_some(self.options.freeze_limit);
        if let Some(filesystem) = mounted(volume, &device)? {
            // Flush first, so that writers wait only for what they write during this flush.
            filesystem.flush()?;
            let frozen = filesystem.freeze().map_err(|error| match error {
                wharf_mount::Error::Busy { .. } => Error::Pending(format!(
                    "volume {} is being copied already: call again",
                    volume.id
                )),
                error => error.into(),
            })?;
            return Ok(FrozenVolume { frozen: Some(frozen), limit });
        }
        Err(Error::Precondition(format!(
            "volume {} is in use as a block device, which cannot be frozen: unpublish it first, or take a snapshot of \
             it alone on a pool with reflinks, where that is instant",
            volume.id
        )))
    }

    fn writable_device(&self, volume: &Volume) -> Result<Option<HeldLoop>, Error> {
        self.devices.find_writable(&self.image(volume))
    }

    /// Thaws a volume that a crash may have left frozen.
    pub(super) fn thaw(&self, volume: &Volume) -> Result<(), Error> {
        for device in self.devices.find(&self.image(volume))? {
            let Some(filesystem) = mounted(volume, &device)? else { continue };
            let point = filesystem.point().to_owned();
            if filesystem.thaw()? {
                tracing::warn!(volume = volume.id, mount = %point.display(), "thawed filesystem after a crash");
            }
        }
        Ok(())
    }
}

/// Returns the filesystem on a volume's device if it is mounted, at its staging path or elsewhere.
fn mounted(volume: &Volume, device: &HeldLoop) -> Result<Option<Mounted>, Error> {
    let number = device.device_number()?;
    if let Some(stage) = &volume.stage
        && mountinfo::root_at(&stage.path)?.is_some_and(|root| root.device == number)
        && let Some(filesystem) = Mounted::of_device(&stage.path, number)?
    {
        return Ok(Some(filesystem));
    }
    for mount in mountinfo::of_device(number)? {
        // A mount that is covered by a second mount cannot be opened by its path.
        if let Some(filesystem) = Mounted::of_device(&mount.point, number)? {
            return Ok(Some(filesystem));
        }
    }
    Ok(None)
}

/// Converts the error of a copy that exceeded its limit.
pub(super) fn too_slow(error: Error, volume: &str, limit: Option<Duration>) -> Error {
    match (error, limit) {
        (Error::Mount(wharf_mount::Error::Stopped { .. }), Some(limit)) => {
            Error::Precondition(format!(
                "volume {volume} is mounted and its copy takes longer than the {limit:?} for which it may be frozen: unpublish \
             it first, or keep it on a pool with reflinks, where a copy is instant"
            ))
        }
        (error, _) => error,
    }
}
