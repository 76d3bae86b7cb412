//! What a controller supplies: the work to do for one key.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Brings one key from what it is to what it should be.
///
/// An operation may be aborted at any await point when the reconciler is dropped or its drain runs
/// out of patience, and it runs again whenever something may have changed: write it idempotent.
pub trait Operation<K>: Send + Sync + 'static {
    /// Does the work that `key` needs now.
    fn run(&self, key: K, attempt: Attempt) -> impl Future<Output = Outcome> + Send;
}

/// What one run knows about itself.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Grows each time the key starts afresh: when it is renewed, and when it is woken after it had
    /// nothing left to do.
    pub generation: u64,
    /// Runs of this generation that failed in a row before this one.
    pub failures: u32,
    /// Fires when the key is renewed during this run, whose result then matters to no one, and when
    /// a drain runs out of patience.
    pub superseded: CancellationToken,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key is as it should be; its failures are forgotten.
    Done,
    /// The key failed: run it again after the next step of the back-off.
    Retry,
    /// The key failed and knows how long to wait; the steps of the back-off are not used up.
    RetryAfter(Duration),
}
