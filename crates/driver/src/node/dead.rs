//! Teardown of volumes whose pool's disk is dead: what is mounted is unmounted, although nothing can be recorded.
//!
//! It is recorded once the disk takes writes again. A start needs no such memory: it compares the records with the kernel.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use wharf_mount::mountinfo;

use super::{NodeVolumes, health::write_failure};
use crate::{error::Error, record::Volume};

/// Undos that are done and not recorded, each with the id of its volume.
#[derive(Debug, Default)]
pub(super) struct Unrecorded(Mutex<BTreeSet<(String, Undo)>>);

impl Unrecorded {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<(String, Undo)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was undone of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Undo {
    /// Its publication at this target.
    Publication(PathBuf),
    /// Its stage at this path.
    Stage(PathBuf),
}

impl Undo {
    fn apply(&self, volume: &mut Volume) {
        match self {
            Self::Publication(target) => drop(volume.publications.remove(target)),
            Self::Stage(path) => {
                volume.stage.take_if(|stage| stage.path == *path);
            }
        }
    }
}

impl NodeVolumes {
    /// Records an undo that is done; `None` if the pool's disk is dead. It is then recorded by a later call.
    pub(super) fn record_undone(&self, id: &str, undo: Undo) -> Result<Option<Arc<Volume>>, Error> {
        let done = undo.clone();
        let recorded = self.record_undo(id, move |volume| done.apply(volume))?;
        if recorded.is_none() {
            self.unrecorded.lock().insert((id.to_owned(), undo));
        }
        Ok(recorded)
    }

    /// Records what was undone while the pool's disk took no writes, if it does now. Called before each call on the pool.
    pub fn record_undone_before(&self) {
        let mut unrecorded = self.unrecorded.lock();
        if unrecorded.is_empty() || self.pool.ensure_present().is_err() || self.is_dead() {
            return;
        }
        while let Some((id, undo)) = unrecorded.first().cloned() {
            match self.pool.edit_volume(&id, move |volume| undo.apply(volume)) {
                Ok(_) | Err(Error::NotFound { .. }) => drop(unrecorded.pop_first()),
                Err(error) => {
                    tracing::warn!(volume = id, %error, "failed to record a teardown, the next call tries again");
                    return;
                }
            }
        }
    }

    /// Forgets an undo of what is done again.
    pub(super) fn is_redone(&self, id: &str, undo: Undo) {
        self.unrecorded.lock().remove(&(id.to_owned(), undo));
    }

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
