use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use wharf_cluster::{PersistentVolumeClaim, Store};

/// What is known of claims besides the API, for as long as the process lives. Claims with nothing to note take no memory.
/// They are known by their UID: another claim may have the name of one that is gone.
#[derive(Debug)]
pub(super) struct Notes<T>(Mutex<HashMap<String, T>>);

impl<T> Default for Notes<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Copy + Default + PartialEq> Notes<T> {
    pub(super) fn of(&self, claim: &PersistentVolumeClaim) -> T {
        self.lock().get(&claim.metadata.uid).copied().unwrap_or_default()
    }

    /// Notes something about a claim; nothing about one that is not in the store any more.
    pub(super) fn note(
        &self,
        claim: &PersistentVolumeClaim,
        note: T,
        store: &Store<PersistentVolumeClaim>,
    ) {
        if note == T::default() {
            return self.forget(claim);
        }
        self.lock().insert(claim.metadata.uid.clone(), note);
        // In this order: one that goes from now on is forgotten by whoever sees it go.
        let known = store.get(&claim.metadata.key());
        if known.is_none_or(|known| known.metadata.uid != claim.metadata.uid) {
            self.forget(claim);
        }
    }

    pub(super) fn forget(&self, claim: &PersistentVolumeClaim) {
        self.lock().remove(&claim.metadata.uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much of a pause that began then is left; `None` where it is over or never began.
pub(super) fn rest(since: Option<Instant>, pause: Duration) -> Option<Duration> {
    let rest = pause.saturating_sub(since?.elapsed());
    (!rest.is_zero()).then_some(rest)
}
