//! What a start finds on the node: a restart finds everything in place, a reboot finds nothing.

use std::path::PathBuf;
use std::sync::Arc;

use super::NodeVolumes;
use super::kernel::Kernel;
use crate::error::Error;
use crate::record::Volume;

impl NodeVolumes {
    /// Brings the records to what the kernel knows: what is no longer mounted is no longer staged or published. Limits of
    /// what still is are applied again.
    ///
    /// # Errors
    /// When the kernel or the state cannot be read.
    pub fn recover(&self) -> Result<usize, Error> {
        let used: Vec<Arc<Volume>> = self
            .pool
            .store()
            .read(|state| state.volumes.iter().filter(|volume| volume.in_use()).cloned().collect());
        if used.is_empty() {
            return Ok(0);
        }
        let kernel = Kernel::look()?;
        let mut forgotten = 0;
        for volume in used {
            let attached = kernel.loops_of(&self.pool.image(&volume));
            let gone: Vec<PathBuf> = volume
                .publications
                .keys()
                .filter(|target| kernel.mount_at(target).is_none())
                .cloned()
                .collect();
            // A stage of which nothing is left, whether it was complete or only begun, is none.
            let unstaged = volume
                .stage
                .as_ref()
                .is_some_and(|stage| attached.is_empty() && kernel.mount_at(&stage.path).is_none());
            if gone.is_empty() && !unstaged {
                self.apply_limits(&volume);
                continue;
            }
            forgotten += 1;
            self.pool.edit_volume(&volume.id, move |volume| {
                volume.publications.retain(|target, _| !gone.contains(target));
                if unstaged {
                    volume.stage = None;
                }
            })?;
        }
        Ok(forgotten)
    }
}
