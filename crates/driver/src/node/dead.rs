//! Tears down volumes whose pool's disk is dead: unmounts them although nothing can be recorded.
//!
//! The undos are recorded when the disk accepts writes again. They need not survive a restart:
//! recovery compares the records with the kernel.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use wharf_mount::mountinfo;

use super::{NodeVolumes, health::write_failure};
use crate::{error::Error, record::Volume};

/// Undos that are done but not recorded, each with the ID of its volume.
#[derive(Debug, Default)]
pub(super) struct Unrecorded(Mutex<BTreeSet<(String, Undo)>>);

impl Unrecorded {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<(String, Undo)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An undone step of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Undo {
    /// The publication at this target.
    Publication(PathBuf),
    /// The stage at this path.
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
    /// Records an undo that is done. Returns `None` if the pool's disk is dead; a later call then
    /// records it.
    pub(super) fn record_undone(&self, id: &str, undo: Undo) -> Result<Option<Arc<Volume>>, Error> {
        let done = undo.clone();
        let recorded = self.record_undo(id, move |volume| done.apply(volume))?;
        if recorded.is_none() {
            self.unrecorded.lock().insert((id.to_owned(), undo));
        }
        Ok(recorded)
    }

    /// Records undos that could not be written before. Called before each call on the pool.
    pub fn record_pending_undos(&self) {
        let mut unrecorded = self.unrecorded.lock();
        if unrecorded.is_empty() || self.pool.ensure_present().is_err() || self.is_dead() {
            return;
        }
        while let Some((id, undo)) = unrecorded.first().cloned() {
            match self.pool.edit_volume(&id, move |volume| undo.apply(volume)) {
                Ok(_) | Err(Error::NotFound { .. }) => drop(unrecorded.pop_first()),
                Err(error) => {
                    tracing::warn!(volume = id, %error, "failed to record teardown, retrying with next call");
                    return;
                }
            }
        }
    }

    /// Discards a pending undo because the step is done again.
    pub(super) fn discard_undo(&self, id: &str, undo: Undo) {
        self.unrecorded.lock().remove(&(id.to_owned(), undo));
    }

    /// Records a step of an undo. Returns `None` if the pool's disk is dead and the step stays
    /// unrecorded.
    pub(super) fn record_undo(
        &self,
        id: &str,
        edit: impl FnOnce(&mut Volume) + Send + 'static,
    ) -> Result<Option<Arc<Volume>>, Error> {
        match self.pool.edit_volume(id, edit) {
            Err(Error::Store(error)) if self.is_dead() => {
                tracing::warn!(volume = id, %error, "pool is not writable, continuing teardown");
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    /// Returns a target where the volume is published. On a dead disk the record may be older than
    /// the last unpublish, so the target must also be mounted.
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

    /// Whether the pool's disk refuses writes for another reason than lack of space.
    fn is_dead(&self) -> bool {
        write_failure(self.pool.layout().root()).is_some()
    }
}
