//! Owner of the tasks that hyper spawns.

use std::future::Future;

use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// Spawns tasks for one connection or one server, and can abort them.
#[derive(Clone, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    cancelled: CancellationToken,
}

impl Tasks {
    /// Drops every task when the guard is dropped.
    pub(crate) fn guard(&self) -> DropGuard {
        self.cancelled.clone().drop_guard()
    }

    /// Whether the tasks are being dropped.
    pub(crate) fn are_ending(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// The number of tasks.
    pub(crate) fn len(&self) -> usize {
        self.tracker.len()
    }

    /// Waits until every task has ended by itself. No task may be spawned meanwhile.
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
        // Boxed, because the wrappers around a task store it three times and move it.
        let task = Box::pin(task);
        self.tracker.spawn(async move {
            cancelled.run_until_cancelled(task).await;
        });
    }
}
