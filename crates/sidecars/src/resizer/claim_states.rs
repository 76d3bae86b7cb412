use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use wharf_cluster::{PersistentVolumeClaim, Store};

/// State of claims that is not in the API, for as long as the process lives. Claims without state
/// take no memory. Claims are identified by their UID: a later one may have the same name.
#[derive(Debug)]
pub(super) struct ClaimStates<T>(Mutex<HashMap<String, T>>);

impl<T> Default for ClaimStates<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Copy + Default + PartialEq> ClaimStates<T> {
    pub(super) fn of(&self, claim: &PersistentVolumeClaim) -> T {
        self.lock().get(&claim.metadata.uid).copied().unwrap_or_default()
    }

    /// Changes the state of a claim; does nothing if the claim is not in the store any more.
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
        // In this order: for a claim that is deleted from now on, the change of the store removes
        // the state.
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

/// The rest of a pause that began then; `None` if it is over or never began.
pub(super) fn rest(since: Option<Instant>, pause: Duration) -> Option<Duration> {
    let rest = pause.saturating_sub(since?.elapsed());
    (!rest.is_zero()).then_some(rest)
}
