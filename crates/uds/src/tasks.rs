//! Owner of the tasks that hyper asks for.

use std::future::Future;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Spawns on behalf of one connection or one server, and can end what it spawned.
#[derive(Clone, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    cancelled: CancellationToken,
}

impl Tasks {
    /// Drops every task when the guard goes.
    pub(crate) fn guard(&self) -> DropGuard {
        self.cancelled.clone().drop_guard()
    }

    /// Whether the tasks are being dropped.
    pub(crate) fn are_ending(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// How many tasks there are.
    pub(crate) fn len(&self) -> usize {
        self.tracker.len()
    }

    /// Waits until every task has ended by itself. There must be none to come.
    pub(crate) async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Drops every task and waits until the last one is gone.
    pub(crate) async fn end(&self) {
        self.cancelled.cancel();
        self.finished().await;
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        let cancelled = self.cancelled.clone();
        // What is around a task holds it three times over, and is copied on its way to the runtime.
        let task = Box::pin(task);
        self.tracker.spawn(async move {
            cancelled.run_until_cancelled(task).await;
        });
    }
}
