//! Recovers the node side at startup: after a restart everything is still mounted, after a reboot
//! nothing is.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{NodeVolumes, kernel::KernelState};
use crate::{
    error::Error,
    record::{Publication, Volume},
    state_dir::image_of,
};

/// Number of volumes that are settled in parallel. The threads mostly wait.
const SETTLE_THREADS: usize = 64;

impl NodeVolumes {
    /// Updates the records to the kernel's state: volumes that are no longer mounted become
    /// unstaged or unpublished. Applies limits again and removes inline volumes without a
    /// publication. Returns the number of changed volumes.
    ///
    /// # Errors
    /// If the kernel or the state cannot be read.
    pub fn recover(&self) -> Result<usize, Error> {
        let used: Vec<Arc<Volume>> = self
            .pool
            .store()
            .read(|state| state.volumes.iter().filter(|volume| of_node(volume)).cloned().collect());
        if used.is_empty() {
            return Ok(0);
        }
        // Wait for teardowns that began before the pool was opened: they hold the image locks, and
        // no new one begins during the opening.
        for volume in &used {
            drop(self.pool.lock_image(volume)?);
        }
        let is_own = |backing: &Path| {
            image_of(backing).is_some_and(|image| used.iter().any(|volume| volume.image == image))
        };
        let kernel = KernelState::read(is_own)?;
        let (mut forgotten, mut unsettled) = (0, Vec::new());
        for volume in used {
            let attached = kernel.loops_of(&self.pool.image(&volume));
            let gone: Vec<PathBuf> = volume
                .publications
                .iter()
                .filter(|(target, _)| kernel.mount_at(target).is_none())
                .filter(|(target, publication)| !comes_back(&volume, target, publication))
                .map(|(target, _)| target.clone())
                .collect();
            // If nothing of a stage is left, complete or not, remove it.
            let unstaged = volume
                .stage
                .as_ref()
                .is_some_and(|stage| attached.is_empty() && kernel.mount_at(&stage.path).is_none());
            if !gone.is_empty() || unstaged {
                forgotten += 1;
                self.pool.edit_volume(&volume.id, move |volume| {
                    volume.publications.retain(|target, _| !gone.contains(target));
                    if unstaged {
                        volume.stage = None;
                    }
                })?;
            }
            let volume = self.pool.volume(&volume.id)?;
            let is_leftover = volume.ephemeral
                && volume.publications.is_empty()
                && !self.shown(&volume, &kernel)?;
            unsettled.push((volume, is_leftover));
        }
        self.settle_all(&unsettled);
        Ok(forgotten)
    }

    /// Settles volumes in parallel: each may wait 5 s for other users of its device.
    fn settle_all(&self, unsettled: &[(Arc<Volume>, bool)]) {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((volume, is_leftover)) =
                unsettled.get(next.fetch_add(1, Ordering::Relaxed))
            {
                match is_leftover {
                    true => self.remove_leftover(volume),
                    false => self.settle(volume),
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..unsettled.len().min(SETTLE_THREADS) {
                scope.spawn(work);
            }
        });
    }

    /// Undoes an interrupted stage or unstage, and applies limits of a volume in use.
    fn settle(&self, volume: &Volume) {
        if let Some(stage) = volume.stage.as_ref().filter(|stage| !stage.complete)
            && volume.publications.is_empty()
        {
            self.undo_stage(volume, &stage.path);
        } else {
            self.apply_limits(volume);
        }
    }

    /// Whether an inline volume is mounted outside of its staging folder: records rebuilt from
    /// images have no publications.
    fn shown(&self, volume: &Volume, kernel: &KernelState) -> Result<bool, Error> {
        let folder = self.pool.layout().ephemeral(&volume.image);
        let staging = folder.canonicalize().unwrap_or(folder);
        let loops = kernel.loops_of(&self.pool.image(volume));
        let shown = loops.into_iter().map(|device| kernel.mounted_besides(device, &staging));
        shown.reduce(|one, other| Ok(one? || other?)).unwrap_or(Ok(false))
    }

    /// Removes an inline volume that a failed publish or a crash left. A failure is logged and does
    /// not affect other volumes.
    fn remove_leftover(&self, volume: &Volume) {
        match self.delete_ephemeral(volume) {
            Ok(()) => tracing::info!(volume = volume.id, "removed inline volume without a pod"),
            Err(error) => {
                tracing::warn!(volume = volume.id, %error, "failed to remove inline volume without a pod");
            }
        }
    }
}

/// Whether the node side must check a volume: it is in use, or inline.
fn of_node(volume: &Volume) -> bool {
    volume.in_use() || volume.ephemeral
}

/// Whether a pod will request an unmounted publication again: after a reboot the pod restarts and
/// expects the data of its inline volume, as long as its folder exists.
fn comes_back(volume: &Volume, target: &Path, publication: &Publication) -> bool {
    volume.ephemeral && publication.complete && target.parent().is_some_and(Path::exists)
}
