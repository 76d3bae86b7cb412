//! The handle that wakes keys, and the state that it shares with the driver.

use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    KeyState,
    metrics::{Oldest, QueueMetrics},
    queue::Queue,
};

/// A cheap, clonable reference to a [`Reconciler`](crate::Reconciler). Its calls never block; after
/// the reconciler is drained or dropped they do nothing.
#[derive(Debug)]
pub struct Handle<K> {
    pub(crate) shared: Arc<SharedQueue<K>>,
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync + 'static> Handle<K> {
    /// Something about the key may have changed: run it. A key that backs off keeps its wait; a key
    /// that runs will run again.
    pub fn wake(&self, key: K) {
        self.shared.change(|inner| inner.queue.wake(key, now()));
    }

    /// The key names a new object (a new inode, a changed spec): clears its back-off and failures
    /// and runs it at once, or after the run that goes on, whose
    /// [`Attempt::superseded`](crate::Attempt::superseded) fires.
    pub fn renew(&self, key: K) {
        self.shared.change(|inner| {
            let running = inner.running.get(&key).cloned();
            if inner.queue.renew(key, now())
                && let Some(superseded) = running
            {
                superseded.cancel();
            }
        });
    }

    /// Drops the back-off and the pending work of the key. A run that goes on may end, and is not
    /// repeated even if it fails.
    pub fn forget(&self, key: &K) {
        self.shared.change(|inner| inner.queue.forget(key));
    }

    /// The state of the key; `None` when it has no work.
    pub fn snapshot(&self, key: &K) -> Option<KeyState> {
        self.shared.lock().queue.state(key)
    }

    /// Resolves when nothing is queued and nothing runs. Keys that back off do not count.
    pub async fn idle(&self) {
        loop {
            let idle = self.shared.idle.notified();
            if self.shared.lock().queue.is_idle() {
                return;
            }
            idle.await;
        }
    }
}

impl<K> Clone for Handle<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// The state that handles and the driver share.
#[derive(Debug)]
pub(crate) struct SharedQueue<K> {
    inner: Mutex<Inner<K>>,
    /// Notified when the driver must look at the queue.
    pub(crate) bell: Notify,
    idle: Notify,
    pub(crate) metrics: Option<QueueMetrics>,
}

#[derive(Debug)]
pub(crate) struct Inner<K> {
    pub(crate) queue: Queue<K>,
    /// The token of each run that goes on.
    pub(crate) running: HashMap<K, CancellationToken>,
    /// The number of queued keys that the metrics were last given.
    measured: usize,
}

impl<K: Clone + Eq + Hash + Send + Sync> Oldest for SharedQueue<K> {
    fn oldest(&self) -> Option<Instant> {
        self.lock().queue.oldest().map(Instant::from_std)
    }
}

impl<K: Clone + Eq + Hash> SharedQueue<K> {
    pub(crate) fn new(queue: Queue<K>, metrics: Option<QueueMetrics>) -> Self {
        let inner = Mutex::new(Inner { queue, running: HashMap::new(), measured: 0 });
        Self { inner, bell: Notify::new(), idle: Notify::new(), metrics }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue, then wakes the driver and, if the queue is idle, those who wait for that.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Inner<K>) -> R) -> R {
        let mut inner = self.lock();
        let answer = change(&mut inner);
        self.measure(&mut inner);
        let idle = inner.queue.is_idle();
        drop(inner);
        if idle {
            self.idle.notify_waiters();
        }
        self.bell.notify_one();
        answer
    }

    /// Updates the metrics from the queue.
    pub(crate) fn measure(&self, inner: &mut Inner<K>) {
        if let Some(metrics) = &self.metrics {
            let depth = inner.queue.depth();
            let before = std::mem::replace(&mut inner.measured, depth);
            metrics.measure((before, depth), inner.queue.take_tally());
        }
    }
}

/// The time of tokio's clock, which tests can pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
