//! How long servers may take.

use std::time::Duration;

use tokio::time::Instant;

/// The share of a call's time that its hooks may take: the runtime needs the rest.
const SHARE: u32 = 5;

/// The time of all servers of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    ends: Instant,
}

impl Budget {
    /// At most `most`, of a call whose caller waits until it `ends`.
    pub(super) fn start(most: Duration, ends: Option<Instant>) -> Budget {
        Budget { ends: Instant::now() + total(most, ends) }
    }

    /// The time of the next server, of which there are still `servers`. What one of them does not
    /// use is there for those after it, and none can take what is theirs, unless its file says so.
    pub(super) fn slice(&self, timeout: Option<Duration>, servers: usize) -> Duration {
        let left = self.ends.saturating_duration_since(Instant::now());
        let servers = u32::try_from(servers).unwrap_or(u32::MAX).max(1);
        timeout.map_or(left / servers, |timeout| timeout.min(left))
    }
}

/// All the time there is: at most `most`, of a call whose caller waits until it `ends`.
pub(super) fn total(most: Duration, ends: Option<Instant>) -> Duration {
    let share = |ends: Instant| ends.saturating_duration_since(Instant::now()) / SHARE;
    ends.map_or(most, |ends| most.min(share(ends)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_leaves_the_others_their_share() {
        let budget = Budget::start(ms(900), None);
        assert_eq!(budget.slice(None, 3), ms(300));
        tokio::time::advance(ms(300)).await;
        assert_eq!(budget.slice(None, 2), ms(300));
        tokio::time::advance(ms(100)).await;
        assert_eq!(budget.slice(None, 1), ms(500), "what others left");
        assert_eq!(budget.slice(Some(ms(20)), 1), ms(20));
        assert_eq!(budget.slice(Some(ms(2000)), 1), ms(500), "never more than there is");
        tokio::time::advance(ms(501)).await;
        assert_eq!(budget.slice(None, 1), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hurried_caller_gets_its_call_done() {
        let begun = Instant::now();
        let slice = |patience| Budget::start(ms(2000), Some(begun + patience)).slice(None, 1);
        assert_eq!(slice(ms(1000)), ms(200));
        assert_eq!(slice(ms(120_000)), ms(2000));
        assert_eq!(slice(Duration::ZERO), Duration::ZERO);
        tokio::time::advance(ms(500)).await;
        assert_eq!(slice(ms(1000)), ms(100), "of what is left by then");
    }
}
