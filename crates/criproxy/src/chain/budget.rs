//! The time limits of servers.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The share of a call's time that its hooks may take: the runtime needs the rest.
const SHARE: u32 = 5;

/// The time that the hooks of one call have taken so far, at all its points. Clones share the sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct HookTime(Arc<Mutex<Spent>>);

#[derive(Debug, Default)]
struct Spent {
    before: Duration,
    /// The number of measurements under way, and the start of the first: concurrent work counts
    /// once.
    running: usize,
    since: Option<Instant>,
}

impl HookTime {
    /// Counts time until the measurement is dropped.
    pub(crate) fn measure(&self) -> Measurement {
        let mut spent = self.lock();
        spent.running += 1;
        spent.since.get_or_insert_with(Instant::now);
        Measurement(self.clone())
    }

    /// The time so far.
    pub(crate) fn spent(&self) -> Duration {
        let spent = self.lock();
        spent.before + spent.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time that counts as taken by hooks, until it is dropped.
#[derive(Debug)]
pub(crate) struct Measurement(HookTime);

impl Drop for Measurement {
    fn drop(&mut self) {
        let mut spent = self.0.lock();
        spent.running -= 1;
        if spent.running == 0
            && let Some(since) = spent.since.take()
        {
            spent.before += since.elapsed();
        }
    }
}

/// The time of all servers at one point of a call.
#[derive(Debug)]
pub(super) struct Budget {
    ends: Instant,
    _measured: Measurement,
}

impl Budget {
    /// The rest of `most`, for a call whose caller waits until it `ends`.
    pub(super) fn start(most: Duration, ends: Option<Instant>, time: &HookTime) -> Self {
        let ends = Instant::now() + total(most, ends, time);
        Self { ends, _measured: time.measure() }
    }

    /// The time of the next of `servers` servers: an equal share of the rest. Later servers share
    /// time that earlier ones leave. Only a `timeout` in its file gives a server more than its
    /// share.
    pub(super) fn slice(&self, timeout: Option<Duration>, servers: usize) -> Duration {
        let left = self.ends.saturating_duration_since(Instant::now());
        let servers = u32::try_from(servers).unwrap_or(u32::MAX).max(1);
        timeout.map_or(left / servers, |timeout| timeout.min(left))
    }
}

/// The time that is left for hooks, at most `most` in all, for a call whose caller waits until it
/// `ends`.
pub(super) fn total(most: Duration, ends: Option<Instant>, time: &HookTime) -> Duration {
    let left = most.saturating_sub(time.spent());
    let share = |ends: Instant| ends.saturating_duration_since(Instant::now()) / SHARE;
    ends.map_or(left, |ends| left.min(share(ends)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_leaves_the_others_their_share() {
        let budget = Budget::start(ms(900), None, &HookTime::default());
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
    async fn all_points_of_a_call_share_one_budget() {
        let time = HookTime::default();
        let before = Budget::start(ms(2000), None, &time);
        tokio::time::advance(ms(700)).await;
        drop(before);
        // The runtime's own time is not that of hooks.
        tokio::time::advance(ms(30_000)).await;
        let after = [(); 10].map(|()| Budget::start(ms(2000), None, &time));
        assert_eq!(after[9].slice(None, 1), ms(1300), "what the point before left");
        tokio::time::advance(ms(300)).await;
        drop(after);
        let last = Budget::start(ms(2000), None, &time);
        assert_eq!(last.slice(None, 1), ms(1000), "what goes on at the same time counts once");
        tokio::time::advance(ms(1500)).await;
        drop(last);
        assert_eq!(total(ms(2000), None, &time), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hurried_caller_gets_its_call_done() {
        let begun = Instant::now();
        let slice = |patience| {
            let time = HookTime::default();
            Budget::start(ms(2000), Some(begun + patience), &time).slice(None, 1)
        };
        assert_eq!(slice(ms(1000)), ms(200));
        assert_eq!(slice(ms(120_000)), ms(2000));
        assert_eq!(slice(Duration::ZERO), Duration::ZERO);
        tokio::time::advance(ms(500)).await;
        assert_eq!(slice(ms(1000)), ms(100), "of what is left by then");
    }
}
