use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use wharf_cluster::Key;

/// What is known of claims besides the API, for as long as the process lives. Claims with nothing to note take no memory.
#[derive(Debug)]
pub(super) struct Notes<T>(Mutex<HashMap<Key, T>>);

impl<T> Default for Notes<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Copy + Default + PartialEq> Notes<T> {
    pub(super) fn of(&self, key: &str) -> T {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.get(key).copied().unwrap_or_default()
    }

    pub(super) fn note(&self, key: &Key, note: T) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if note == T::default() {
            notes.remove(key);
        } else {
            notes.insert(Key::clone(key), note);
        }
    }
}

/// How much of a pause that began then is left; `None` where it is over or never began.
pub(super) fn rest(since: Option<Instant>, pause: Duration) -> Option<Duration> {
    let rest = pause.saturating_sub(since?.elapsed());
    (!rest.is_zero()).then_some(rest)
}
