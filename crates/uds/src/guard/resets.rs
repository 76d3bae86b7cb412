//! Limits how many calls a client may reset.

use tokio::time::Instant;

use crate::limits::{RESET_EVERY, RESETS};

/// The resets of one connection: a burst of [`RESETS`], and one more each [`RESET_EVERY`].
#[derive(Default)]
pub(super) struct Resets {
    /// When the connection will have its full allowance again.
    restored: Option<Instant>,
}

impl Resets {
    /// Counts a reset, and returns whether it is allowed.
    pub(super) fn allow(&mut self) -> bool {
        let now = Instant::now();
        let restored = self.restored.map_or(now, |at| at.max(now)) + RESET_EVERY;
        self.restored = Some(restored);
        restored - now <= RESET_EVERY * RESETS
    }
}

#[cfg(test)]
mod tests {
    use std::{iter::repeat_with, time::Duration};

    use tokio::time::advance;

    use super::*;

    fn allowed(resets: &mut Resets) -> u32 {
        let granted = repeat_with(|| resets.allow()).take_while(|allowed| *allowed);
        u32::try_from(granted.take(100_000).count()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_allowed_and_then_one_at_a_time() {
        let mut resets = Resets::default();
        assert_eq!(allowed(&mut resets), RESETS);
        advance(RESET_EVERY * 11).await;
        // The one that was refused counts as well.
        assert_eq!(allowed(&mut resets), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn the_allowance_does_not_grow_beyond_a_batch() {
        let mut resets = Resets::default();
        assert!(resets.allow());
        advance(Duration::from_secs(3600)).await;
        assert_eq!(allowed(&mut resets), RESETS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_cancels_a_hundred_calls_a_second_goes_on() {
        let mut resets = Resets::default();
        for _ in 0..100_000 {
            assert!(resets.allow());
            advance(Duration::from_millis(10)).await;
        }
    }
}
