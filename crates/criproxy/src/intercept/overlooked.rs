//! Containers that were made or changed while nobody had a record of them.
//!
//! A call that no hook server wants to hear of does not wait until the runtime tells what it is
//! about. What it is about is looked at afterwards, in nobody's time, so that servers that come
//! later hear of it like of any other.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// The most ids that are kept, for a runtime that never tells: others are looked for when a call
/// needs them.
const MOST: usize = 10_000;

/// Their ids, until somebody looks.
#[derive(Debug, Default)]
pub(crate) struct Overlooked {
    ids: Mutex<BTreeSet<String>>,
    some: Notify,
}

impl Overlooked {
    pub(crate) fn note(&self, id: String) {
        let mut ids = self.ids();
        if ids.len() < MOST {
            ids.insert(id);
            self.some.notify_one();
        }
    }

    /// Those of now.
    pub(crate) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.ids())
    }

    /// Waits for a further id.
    pub(crate) async fn noted(&self) {
        self.some.notified().await;
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
