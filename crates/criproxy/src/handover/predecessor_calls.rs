//! The calls that the predecessor still answers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use super::{
    calls::{Calls, Running},
    scope::Scope,
};

/// What the predecessor is busy with. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct PredecessorCalls {
    busy: watch::Sender<BTreeMap<u64, Scope>>,
    /// They are under way for a successor of this process, too.
    running: Arc<Mutex<HashMap<u64, Running>>>,
}

impl PredecessorCalls {
    /// Waits until the predecessor answers no call that one about `scope` has to wait for.
    pub(crate) async fn clear(&self, scope: Option<&Scope>) {
        let Some(scope) = scope else { return };
        let is_clear =
            |busy: &BTreeMap<u64, Scope>| !busy.values().any(|other| scope.conflicts_with(other));
        if !is_clear(&self.busy.borrow()) {
            // The sender is ours.
            let _ = self.busy.subscribe().wait_for(is_clear).await;
        }
    }

    pub(super) fn begin(&self, call: u64, scope: Scope, calls: &Calls) {
        let running = calls.adopt(scope.clone());
        self.running().insert(call, running);
        self.busy.send_modify(|busy| drop(busy.insert(call, scope)));
    }

    /// A call has ended, and its records are in force.
    pub(super) async fn end(&self, call: u64) {
        let running = self.running().remove(&call);
        if let Some(running) = running {
            running.end().await;
        }
        self.busy.send_modify(|busy| drop(busy.remove(&call)));
    }

    /// What the predecessor was busy with when it went. `forget` is called for each before others
    /// go on.
    pub(super) fn abandon(&self, forget: impl Fn(&Scope)) {
        let busy = self.busy.borrow().clone();
        busy.values().for_each(forget);
        self.running().clear();
        self.busy.send_replace(BTreeMap::new());
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
