//! What a start finds on the node: a restart finds everything in place, a reboot finds nothing.

use std::path::{Path, PathBuf};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::thread;

use super::NodeVolumes;
use super::kernel::Kernel;
use crate::error::Error;
use crate::record::{Publication, Volume};
use crate::state_dir::image_of;

/// Volumes that are settled at the same time. Threads that wait for others cost little.
const SETTLERS: usize = 64;

impl NodeVolumes {
    /// Brings the records to what the kernel knows: what is no longer mounted is no longer staged or published. Limits of
    /// what still is are applied again. Inline volumes that are published nowhere any more are removed.
    ///
    /// # Errors
    /// When the kernel or the state cannot be read.
    pub fn recover(&self) -> Result<usize, Error> {
        let used: Vec<Arc<Volume>> = self
            .pool
            .store()
            .read(|state| state.volumes.iter().filter(|volume| of_node(volume)).cloned().collect());
        if used.is_empty() {
            return Ok(0);
        }
        // A teardown that began before the pool was opened has the image locked, and no other begins while it is opened.
        for volume in &used {
            drop(self.pool.lock_image(volume)?);
        }
        let is_own = |backing: &Path| {
            image_of(backing).is_some_and(|image| used.iter().any(|volume| volume.image == image))
        };
        let kernel = Kernel::look(is_own)?;
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
            // A stage of which nothing is left, whether it was complete or only begun, is none.
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

    /// Settles volumes side by side: each may have to wait 5 s for others that hold its device.
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
            for _ in 0..unsettled.len().min(SETTLERS) {
                scope.spawn(work);
            }
        });
    }

    /// Undoes a stage or an unstage that was cut short, and applies limits where the volume is in use.
    fn settle(&self, volume: &Volume) {
        if let Some(stage) = volume.stage.as_ref().filter(|stage| !stage.complete)
            && volume.publications.is_empty()
        {
            self.take_down(volume, &stage.path);
        } else {
            self.apply_limits(volume);
        }
    }

    /// Whether an inline volume is mounted somewhere but where it is staged: the records of a state that was rebuilt from
    /// the images know of no publication.
    fn shown(&self, volume: &Volume, kernel: &Kernel) -> Result<bool, Error> {
        let folder = self.pool.layout().ephemeral(&volume.image);
        let staging = folder.canonicalize().unwrap_or(folder);
        let loops = kernel.loops_of(&self.pool.image(volume));
        let shown = loops.into_iter().map(|device| kernel.mounted_besides(device, &staging));
        shown.reduce(|one, other| Ok(one? || other?)).unwrap_or(Ok(false))
    }

    /// Removes an inline volume that a failed publish or a crash left. Others are served all the same when that fails.
    fn remove_leftover(&self, volume: &Volume) {
        match self.delete_ephemeral(volume) {
            Ok(()) => tracing::info!(volume = volume.id, "removed inline volume without a pod"),
            Err(error) => {
                tracing::warn!(volume = volume.id, %error, "failed to remove inline volume without a pod");
            }
        }
    }
}

/// Whether the node has something to do with a volume: one in use, or one that only a pod knows.
fn of_node(volume: &Volume) -> bool {
    volume.in_use() || volume.ephemeral
}

/// Whether a publication that is not mounted belongs to a pod that will ask for it again: after a reboot the pod starts
/// again and expects the data of its inline volume, as long as its folder is there.
fn comes_back(volume: &Volume, target: &Path, publication: &Publication) -> bool {
    volume.ephemeral && publication.complete && target.parent().is_some_and(Path::exists)
}
