//! The task that runs operations as the queue decides, and the [`Reconciler`] that owns it.

use std::{
    any::Any,
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    task::{self, JoinError, JoinSet},
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    Attempt, Backoff, Operation, Outcome,
    handle::{Handle, SharedQueue},
    metrics::{QueueMetrics, Work},
    operation::{Noted, noting},
    queue::{LongPending, Queue, Start, YEAR},
};

/// Settings of a reconciler.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names the reconciler in logs.
    pub name: &'static str,
    /// How many keys run at the same time; 0 counts as 1.
    pub parallelism: usize,
    /// The waits between failures of one key.
    pub backoff: Backoff,
    /// Metrics of the queue; `None` exports none.
    pub metrics: Option<QueueMetrics>,
}

/// Runs an [`Operation`] for the keys that its [`Handle`]s name.
///
/// It owns every task that it starts: dropping it aborts them, [`Reconciler::drain`] waits for
/// them.
#[derive(Debug)]
pub struct Reconciler<K> {
    shared: Arc<SharedQueue<K>>,
    drain: oneshot::Sender<Duration>,
    driver: JoinSet<Vec<K>>,
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync + 'static> Reconciler<K> {
    /// Starts a reconciler with no keys. Must be called inside a tokio runtime with timers.
    pub fn start<O: Operation<K>>(config: Config, operation: O) -> Self {
        let shared = Arc::new(SharedQueue::new(
            Queue::new(config.parallelism, config.backoff),
            config.metrics,
        ));
        if let Some(metrics) = &shared.metrics {
            let queue: Weak<SharedQueue<K>> = Arc::downgrade(&shared);
            metrics.count(queue);
        }
        let (drain, asked_to_drain) = oneshot::channel();
        let driver = Driver {
            name: config.name,
            shared: Arc::clone(&shared),
            operation: Arc::new(operation),
            runs: JoinSet::new(),
            keys: HashMap::new(),
        };
        let mut tasks = JoinSet::new();
        // Log lines carry the span of the reconciler's owner.
        tasks.spawn(driver.run(asked_to_drain).in_current_span());
        Self { shared, drain, driver: tasks }
    }

    /// A handle for callers that wake keys.
    pub fn handle(&self) -> Handle<K> {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Accepts no new keys, starts no queued key and waits for the running ones. After `patience`
    /// their [`Attempt::superseded`] fires and they have another 100 ms. Aborts the runs that are
    /// left, and returns their keys.
    pub async fn drain(mut self, patience: Duration) -> Vec<K> {
        self.shared.change(|inner| inner.queue.close());
        // Fails only when the driver has ended, which leaves nothing to drain.
        let _ = self.drain.send(patience);
        match self.driver.join_next().await {
            Some(Ok(aborted)) => aborted,
            Some(Err(_)) | None => Vec::new(),
        }
    }
}

/// How long a run may take to end after it was superseded, and again after it was aborted.
const LAST_CALL: Duration = Duration::from_millis(100);

struct Driver<K: Clone + Eq + Hash, O> {
    name: &'static str,
    shared: Arc<SharedQueue<K>>,
    operation: Arc<O>,
    runs: JoinSet<Noted>,
    /// The key of each run, and its work timer, which observes the duration when it is dropped.
    keys: HashMap<task::Id, (K, Option<Work>)>,
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync + 'static, O: Operation<K>> Driver<K, O> {
    async fn run(mut self, mut drain: oneshot::Receiver<Duration>) -> Vec<K> {
        loop {
            let due = self.start_runs();
            let wait = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                patience = &mut drain => {
                    // Without a sender the reconciler is being dropped, and this task with it.
                    let Ok(patience) = patience else { return Vec::new() };
                    return self.drain(patience).await;
                }
                Some(ended) = self.runs.join_next_with_id() => self.end_run(ended),
                () = self.shared.bell.notified() => {}
                () = wait => {}
            }
        }
    }

    /// Starts every key that may run now; returns when to look again.
    fn start_runs(&mut self) -> Option<Instant> {
        let mut inner = self.shared.lock();
        let now = Instant::now().into_std();
        while let Some(Start { key, generation, failures, waited }) = inner.queue.start(now) {
            let superseded = CancellationToken::new();
            inner.running.insert(key.clone(), superseded.clone());
            let attempt = Attempt { generation, failures, superseded };
            let operation = Arc::clone(&self.operation);
            let run = {
                let key = key.clone();
                async move { noting(operation.run(key, attempt)).await }
            };
            let work = self.shared.metrics.as_ref().map(|metrics| metrics.begin(waited));
            self.keys.insert(self.runs.spawn(run.in_current_span()).id(), (key, work));
        }
        self.shared.measure(&mut inner);
        for LongPending { key, age, failures, error } in inner.queue.long_pending(now) {
            let error = error.as_deref().unwrap_or("none noted");
            tracing::warn!(
                reconciler = self.name,
                ?key,
                ?age,
                failures,
                error,
                "object has been pending for long"
            );
        }
        let due = inner.queue.due().into_iter().chain(inner.queue.look_at()).min();
        due.map(Instant::from_std)
    }

    fn end_run(&mut self, ended: Result<(task::Id, Noted), JoinError>) {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, Ok(outcome)),
            // Aborted: the key stays in `running`, where `drain` finds it.
            Err(error) if error.is_cancelled() => return,
            Err(error) => (error.id(), Err(error)),
        };
        let (key, _) = self.keys.remove(&id).expect("every run has a key");
        let (outcome, error) = outcome.unwrap_or_else(|error| {
            let panic = error.into_panic();
            let panic = panic_text(&*panic);
            tracing::error!(reconciler = self.name, ?key, panic, "operation panicked, retrying");
            (Outcome::Retry, Some(format!("panicked: {panic}").into()))
        });
        let state = self.shared.change(|inner| {
            inner.running.remove(&key);
            inner.queue.finish(key.clone(), outcome, Instant::now().into_std());
            inner.queue.note_error(&key, error);
            inner.queue.state(&key)
        });
        if outcome != Outcome::Done {
            tracing::debug!(reconciler = self.name, ?key, ?outcome, ?state, "run failed");
        }
    }

    async fn drain(mut self, patience: Duration) -> Vec<K> {
        self.join_runs(patience).await;
        for superseded in self.shared.lock().running.values() {
            superseded.cancel();
        }
        self.join_runs(LAST_CALL).await;
        self.runs.abort_all();
        self.join_runs(LAST_CALL).await;
        let aborted: Vec<K> = self.shared.lock().running.keys().cloned().collect();
        if !aborted.is_empty() {
            tracing::warn!(reconciler = self.name, keys = ?aborted, ?patience, "aborted runs that did not end");
        }
        aborted
    }

    async fn join_runs(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience.min(YEAR);
        loop {
            let ended = timeout_at(deadline, self.runs.join_next_with_id()).await;
            match ended {
                Ok(Some(ended)) => self.end_run(ended),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// However the driver ends, [`Handle::idle`] must not block for ever: no key stays running.
impl<K: Clone + Eq + Hash, O> Drop for Driver<K, O> {
    fn drop(&mut self) {
        self.shared.change(|inner| {
            inner.queue.close();
            for (key, superseded) in inner.running.drain() {
                superseded.cancel();
                inner.queue.finish(key, Outcome::Done, Instant::now().into_std());
            }
        });
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("not a text")
}
