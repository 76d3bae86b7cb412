//! Teardown of volumes whose pool's disk is dead: what is mounted is unmounted, although nothing can be recorded.
//!
//! The next start compares the records with the kernel, and so finds out by itself what is no longer there.

use std::{path::PathBuf, sync::Arc};

use wharf_mount::mountinfo;

use super::{NodeVolumes, health::write_failure};
use crate::{error::Error, record::Volume};

impl NodeVolumes {
    /// Records a step of an undo; `None` if the pool's disk is dead and the step stays unrecorded.
    pub(super) fn record_undo(
        &self,
        id: &str,
        edit: impl FnOnce(&mut Volume) + Send + 'static,
    ) -> Result<Option<Arc<Volume>>, Error> {
        match self.pool.edit_volume(id, edit) {
            Err(Error::Store(error)) if self.is_dead() => {
                tracing::warn!(volume = id, %error, "pool takes no writes, going on with the teardown");
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    /// A target where the volume is published. On a dead disk a record may be older than the last unpublish: there the mount
    /// has to be there, too.
    pub(super) fn published_target(&self, volume: &Volume) -> Result<Option<PathBuf>, Error> {
        let mut targets = volume.publications.keys();
        if !self.is_dead() {
            return Ok(targets.next().cloned());
        }
        for target in targets {
            if mountinfo::root_at(target)?.is_some() {
                return Ok(Some(target.clone()));
            }
        }
        Ok(None)
    }

    /// Whether the pool's disk takes no writes, other than for want of room.
    fn is_dead(&self) -> bool {
        write_failure(self.pool.layout().root()).is_some()
    }
}
