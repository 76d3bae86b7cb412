//! Stages volumes: attaches the device and mounts its filesystem at the staging path.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use wharf_mount::{
    Filesystem,
    loopdev::HeldLoop,
    mount,
    mounted::Mounted,
    mountinfo::{self, Mount},
};

use super::{NodeVolumes, dead::Undo, target::refuse_full_folder};
use crate::{
    devices::{Detached, ImageLock},
    error::Error,
    points::Point,
    record::{Access, Content, Stage, Usage, Volume},
};

/// Maximum wait of a stage for a copy to be unshared, before it returns the progress as an error.
const UNSHARING_WAIT: Duration = Duration::from_secs(20);

/// A stage request.
#[derive(Clone, Debug)]
pub struct StageRequest {
    /// ID of the volume.
    pub volume: String,
    /// Staging path, which exists.
    pub path: PathBuf,
    /// How the volume will be used.
    pub usage: Usage,
}

impl NodeVolumes {
    /// Stages a volume. A no-op if it is staged there already.
    ///
    /// # Errors
    /// If the volume is staged elsewhere or in another way, cannot be mounted, or must not be
    /// formatted.
    pub fn stage(&self, request: &StageRequest) -> Result<(), Error> {
        self.refuse_symlinks(&request.path)?;
        let wanted = request.usage.filesystem()?;
        self.pool.await_unshared(&request.volume, UNSHARING_WAIT)?;
        let volume = self.promise_stage(request)?;
        self.discard_undo(&volume.id, Undo::Stage(request.path.clone()));
        let staged = self.run_stage(&volume, request, wanted);
        if staged.is_err() && !volume.stage.as_ref().is_some_and(|stage| stage.complete) {
            // Undo it: an orchestrator that treats the error as final does not unstage.
            self.undo_stage(&volume, &request.path);
        }
        staged
    }

    fn run_stage(
        &self,
        volume: &Volume,
        request: &StageRequest,
        wanted: Option<Filesystem>,
    ) -> Result<(), Error> {
        self.pool.reach(Point::StagePromised)?;
        // Unsharing may have begun since the wait; it does not continue once the stage is promised.
        self.pool.refuse_unsharing(volume)?;
        let read_only = volume.stage.as_ref().is_some_and(|stage| stage.read_only);
        let image = self.pool.lock_image(volume)?;
        self.clear_path(volume, &request.path, read_only)?;
        self.pool.roll_back(&image, volume)?;
        self.pool.ensure_whole(volume)?;
        match &request.usage.access {
            Access::Block => {}
            Access::Mount { .. } if read_only => self.replay_journal(&image, volume, request)?,
            Access::Mount { .. } => self.prepare(&image, volume)?,
        }
        if !read_only {
            self.pool.ensure_allocated(volume);
        }
        self.note_attached(volume)?;
        self.pool.reach(Point::StageNoted)?;
        let device = image.attach(read_only)?;
        self.pool.reach(Point::StageAttached)?;
        if request.usage.access == Access::Block {
            self.abandon_format(volume, &device)?;
        }
        if let Access::Mount { flags, .. } = &request.usage.access
            && !mounted_from(&device, &request.path)?
        {
            let filesystem = self.ensure_filesystem(volume, &device, wanted)?;
            self.mount(&device, &request.path, filesystem, flags)?;
            self.pool.reach(Point::StageMounted)?;
            self.grow_or_warn(volume, filesystem, &device, &request.path)?;
        }
        self.pool.edit_volume(&request.volume, |volume| {
            if let Some(stage) = &mut volume.stage {
                stage.complete = true;
            }
        })?;
        self.pool.reach(Point::StageDone)?;
        Ok(())
    }

    /// Grows a filesystem that could not grow before the mount because another process held its
    /// device. If the kernel cannot grow it while mounted, a later stage grows it.
    fn grow_or_warn(
        &self,
        volume: &Volume,
        filesystem: Filesystem,
        device: &HeldLoop,
        path: &Path,
    ) -> Result<(), Error> {
        match self.grow_mounted(filesystem, device, path) {
            Err(Error::Precondition(reason)) => {
                tracing::warn!(
                    volume = volume.id,
                    reason,
                    "staged filesystem is smaller than its volume"
                );
                Ok(())
            }
            grown => grown,
        }
    }

    /// Undoes a stage. Succeeds if the volume is not staged there.
    ///
    /// # Errors
    /// If the volume is still published or in use, or something else is mounted over it.
    pub fn unstage(&self, id: &str, path: &Path) -> Result<(), Error> {
        self.refuse_symlinks(path)?;
        let Ok(volume) = self.pool.volume(id) else { return Ok(()) };
        if let Some(stage) = &volume.stage
            && stage.path != path
        {
            // The volume is staged at another path.
            return Ok(());
        }
        if let Some(target) = self.published_target(&volume)? {
            return Err(Error::Precondition(format!(
                "volume {id} is still published at {}: unpublish it first",
                target.display()
            )));
        }
        self.refuse_foreign_stage(&volume, path)?;
        self.record_undo(id, |volume| {
            if let Some(stage) = &mut volume.stage {
                stage.complete = false;
            }
        })?;
        self.pool.reach(Point::UnstagePromised)?;
        self.release(&volume, path)?;
        self.record_undone(id, Undo::Stage(path.to_owned()))?;
        self.pool.volume_released();
        self.pool.reach(Point::UnstageDone)?;
        Ok(())
    }

    /// Refuses to unstage a volume if its staging path shows something else: the volume would stay
    /// mounted below, or the next stage could not mount it.
    fn refuse_foreign_stage(&self, volume: &Volume, path: &Path) -> Result<(), Error> {
        let Some(stage) = &volume.stage else { return Ok(()) };
        if stage.usage.access == Access::Block || mountinfo::root_at(path)?.is_none() {
            return Ok(());
        }
        for device in self.pool.devices().find(&self.pool.image(volume))? {
            if mounted_from(&device, path)? {
                return Ok(());
            }
        }
        match mountinfo::at(path)? {
            None => Ok(()),
            Some(mount) => Err(foreign(&mount, path, volume)),
        }
    }

    /// Undoes a stage that failed. On failure the orchestrator's unstage undoes the rest.
    pub(super) fn undo_stage(&self, volume: &Volume, path: &Path) {
        let undone = self
            .release(volume, path)
            .and_then(|()| self.pool.edit_volume(&volume.id, |volume| volume.stage = None));
        if let Err(error) = undone {
            tracing::warn!(volume = volume.id, %error, "failed to undo stage");
        }
    }

    /// Unmounts and detaches the volume. A device that other processes hold stays until they close
    /// it: a foreign process must not block a pod's teardown.
    pub(super) fn release(&self, volume: &Volume, path: &Path) -> Result<(), Error> {
        let image = self.pool.lock_image(volume)?;
        for device in self.pool.devices().find(&self.pool.image(volume))? {
            if mounted_from(&device, path)? {
                // Other processes may keep it mounted, and a later snapshot misses data that is not
                // flushed.
                if let Some(filesystem) = Mounted::of_device(path, device.device_number()?)? {
                    filesystem.flush().unwrap_or_else(|error| {
                        tracing::warn!(volume = volume.id, %error, "failed to flush volume before unmount");
                    });
                }
                mount::unmount(path)?;
            }
        }
        self.pool.reach(Point::UnstageUnmounted)?;
        self.detach(volume, &image)?;
        self.pool.reach(Point::UnstageDetached)?;
        self.forget_attached(volume)?;
        self.pool.reach(Point::UnstageForgotten)
    }

    /// Detaches a volume's device, or leaves that to the kernel if other processes hold it.
    pub(super) fn detach(&self, volume: &Volume, image: &ImageLock<'_>) -> Result<(), Error> {
        if let Detached::LeftToOthers(device) = image.detach()? {
            tracing::warn!(volume = volume.id, device = %device.display(), "device in use, kernel detaches it on last close");
        }
        Ok(())
    }

    /// Unmounts leftovers of an interrupted stage from the staging path, and refuses the path if
    /// anything else is mounted there.
    fn clear_path(&self, volume: &Volume, path: &Path, read_only: bool) -> Result<(), Error> {
        for device in self.pool.devices().find(&self.pool.image(volume))? {
            while device.read_only != read_only && mounted_from(&device, path)? {
                mount::unmount(path)?;
            }
            if mounted_from(&device, path)? {
                return Ok(());
            }
        }
        if mountinfo::root_at(path)?.is_none() {
            return refuse_full_folder(path);
        }
        match mountinfo::at(path)? {
            None => refuse_full_folder(path),
            Some(mount) => Err(foreign(&mount, path, volume)),
        }
    }

    fn promise_stage(&self, request: &StageRequest) -> Result<Arc<Volume>, Error> {
        let volume = self.pool.whole_volume(&request.volume)?;
        match &volume.stage {
            Some(stage) if stage.path != request.path => Err(Error::Precondition(format!(
                "volume {} is staged at {}: unstage it there first",
                volume.id,
                stage.path.display()
            ))),
            Some(stage) if stage.usage != request.usage => Err(Error::Exists(format!(
                "volume {} is staged at {} for another use: unstage it first",
                volume.id,
                stage.path.display()
            ))),
            Some(_) => Ok(volume),
            None => {
                let stage = Stage {
                    path: request.path.clone(),
                    usage: request.usage.clone(),
                    read_only: volume.reads_only(&request.usage),
                    complete: false,
                };
                self.pool.edit_volume(&volume.id, |volume| volume.stage = Some(stage))
            }
        }
    }

    /// Mounts a filesystem that was not unmounted cleanly, so that the kernel replays its journal:
    /// on a read-only device it cannot.
    fn replay_journal(
        &self,
        image: &ImageLock<'_>,
        volume: &Volume,
        request: &StageRequest,
    ) -> Result<(), Error> {
        let Content::Filesystem(filesystem) = volume.content else { return Ok(()) };
        let devices = self.pool.devices().find(&self.pool.image(volume))?;
        if devices.iter().any(|device| device.read_only) {
            return Ok(());
        }
        drop(devices);
        self.prepare(image, volume)?;
        self.note_attached(volume)?;
        let device = image.attach(false)?;
        self.pool.reach(Point::ReplayAttached)?;
        self.mount(&device, &request.path, filesystem, &[])?;
        self.pool.reach(Point::ReplayMounted)?;
        mount::unmount(&request.path)?;
        self.pool.reach(Point::ReplayUnmounted)?;
        drop(device);
        image.ensure_detached("staged for reading")
    }
}

impl Usage {
    /// Returns the requested filesystem, if any.
    ///
    /// # Errors
    /// If the driver does not support it.
    pub fn filesystem(&self) -> Result<Option<Filesystem>, Error> {
        match &self.access {
            Access::Mount { filesystem, .. } if !filesystem.is_empty() => {
                let unknown =
                    |_| Error::invalid("volume_capability.mount.fs_type", "ext4, xfs or nothing");
                filesystem.parse().map(Some).map_err(unknown)
            }
            _ => Ok(None),
        }
    }
}

fn foreign(mount: &Mount, path: &Path, volume: &Volume) -> Error {
    Error::Precondition(format!(
        "{} is a mount of {}, not of volume {}: unmount it by hand",
        path.display(),
        mount.source,
        volume.id
    ))
}

/// Whether `path` is a mount of this device or of its node.
pub(super) fn mounted_from(device: &HeldLoop, path: &Path) -> Result<bool, Error> {
    let number = device.device_number()?;
    Ok(mountinfo::root_at(path)?.is_some_and(|root| root.shows(number)))
}
