//! The time that a client has to send its message.

use std::future::Future;

use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::limits::MESSAGE_SILENCE;

/// Ends when the caller's time is over, and after [`MESSAGE_SILENCE`] without a byte.
pub(super) struct Patience {
    caller: Option<Instant>,
    silence: Instant,
}

impl Patience {
    /// `caller` is the end of the caller's own time.
    pub(super) fn new(caller: Option<Instant>) -> Self {
        Self { caller, silence: Instant::now() + MESSAGE_SILENCE }
    }

    /// Counts bytes that came. Empty frames are no progress.
    pub(super) fn restore(&mut self, bytes: usize) {
        if bytes > 0 {
            self.silence = Instant::now() + MESSAGE_SILENCE;
        }
    }

    /// Waits for `work` while there is time.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
        let ends = self.caller.map_or(self.silence, |caller| caller.min(self.silence));
        timeout_at(ends, work).await.map_err(|_| self.refusal())
    }

    fn refusal(&self) -> Status {
        let is_callers = self.caller.is_some_and(|caller| caller <= self.silence);
        Status::deadline_exceeded(if is_callers {
            "the caller's time was over before all of the message had come".to_owned()
        } else {
            format!("no byte of the message came for {MESSAGE_SILENCE:?}, and it is not complete")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use super::*;

    async fn refusal(patience: &Patience) -> String {
        patience.within(pending::<()>()).await.unwrap_err().message().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_stops_is_waited_for_a_bounded_time() {
        let begun = Instant::now();
        let mut patience = Patience::new(None);
        tokio::time::advance(MESSAGE_SILENCE / 2).await;
        patience.restore(1);
        tokio::time::advance(MESSAGE_SILENCE / 2).await;
        // Frames without a byte restore nothing.
        patience.restore(0);
        assert!(refusal(&patience).await.contains("came for 10s"));
        let waited = begun.elapsed();
        let expected = MESSAGE_SILENCE * 3 / 2;
        assert!(waited >= expected && waited < expected + Duration::from_secs(1), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_callers_own_time_comes_first() {
        let begun = Instant::now();
        let patience = Patience::new(Some(begun + MESSAGE_SILENCE / 2));
        assert!(refusal(&patience).await.contains("caller's time"));
        assert!(begun.elapsed() < MESSAGE_SILENCE);
    }
}
