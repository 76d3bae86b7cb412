//! The work that a controller does for one key.

use std::{cell::RefCell, fmt::Display, future::Future, time::Duration};

use tokio_util::sync::CancellationToken;

/// Brings one key from its actual to its desired state.
///
/// An operation may be aborted at any await point when the reconciler is dropped or its drain runs
/// out of patience, and it runs again whenever something may have changed: write it idempotent.
pub trait Operation<K>: Send + Sync + 'static {
    /// Does the work that `key` needs now.
    fn run(&self, key: K, attempt: Attempt) -> impl Future<Output = Outcome> + Send;
}

/// State of one run.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Grows each time the key starts afresh: when it is renewed, and when it is woken after it had
    /// nothing left to do.
    pub generation: u64,
    /// Runs of this generation that failed in a row before this one.
    pub failures: u32,
    /// Fires when the key is renewed during this run, whose outcome is then ignored, and when the
    /// patience of a drain ends.
    pub superseded: CancellationToken,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key has its desired state; its failures are cleared.
    Done,
    /// The key failed: run it again after the next step of the back-off.
    Retry,
    /// The key failed: run it again after this time. No step of the back-off is used.
    RetryAfter(Duration),
}

/// The longest error text that is kept, in characters.
const LONGEST_ERROR: usize = 512;

tokio::task_local! {
    static ERROR: RefCell<Option<Box<str>>>;
}

/// Notes why this run fails, for the log line about keys that stay pending. The last note of a run
/// counts. Does nothing outside of a run, and in tasks that a run starts.
pub fn note_error(error: impl Display) {
    let text: String = error.to_string().chars().take(LONGEST_ERROR).collect();
    // Fails only outside of a run.
    let _ = ERROR.try_with(|slot| *slot.borrow_mut() = Some(text.into()));
}

/// The outcome of a run, and the error that it noted.
pub(crate) type Noted = (Outcome, Option<Box<str>>);

/// Runs an operation and collects the error that it notes.
pub(crate) async fn noting<F: Future<Output = Outcome>>(run: F) -> Noted {
    let run = async {
        let outcome = run.await;
        (outcome, ERROR.with(RefCell::take))
    };
    ERROR.scope(RefCell::default(), run).await
}
