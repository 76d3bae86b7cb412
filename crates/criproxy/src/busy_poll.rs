//! Polls for the next bytes instead of sleeping.
//!
//! Each call wakes the proxy twice. On an idle machine waking a thread takes longer than all the
//! work of the proxy, because the processor sleeps as well. So for a moment after each step of a
//! call the thread polls for the next step. Between calls it sleeps.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::{spawn_blocking, yield_now},
    time::{Instant, sleep_until},
};

/// The node counts as idle when no call has made a step for this long.
const REST: Duration = Duration::from_secs(1);

/// Busy polling for the next step of a call. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct BusyPoll(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    length: Duration,
    ends: Mutex<Instant>,
    stepped: Notify,
    at_rest: fn(),
}

impl BusyPoll {
    /// Polls for `length` after each step. Calls `at_rest` when there was no step for a second.
    pub(crate) fn new(length: Duration, at_rest: fn()) -> Self {
        let (ends, stepped) = (Mutex::new(Instant::now()), Notify::new());
        Self(Arc::new(Shared { length, ends, stepped, at_rest }))
    }

    /// Records a step of a call, which a further step will follow.
    pub(crate) fn extend(&self) {
        *self.ends() = Instant::now() + self.0.length;
        self.0.stepped.notify_one();
    }

    /// Polls after each step; sleeps otherwise. Never returns.
    pub(crate) async fn keep(self) {
        loop {
            self.0.stepped.notified().await;
            self.until_rest().await;
            // `at_rest` may be slow, so it runs on a blocking thread. A panic of it is ignored.
            let _ = spawn_blocking(self.0.at_rest).await;
        }
    }

    /// Returns once there was no step for long enough. One timer serves all steps, because setting
    /// a timer takes a system call.
    async fn until_rest(&self) {
        let mut rest = pin!(sleep_until(*self.ends() + REST));
        loop {
            self.watch().await;
            tokio::select! {
                () = self.0.stepped.notified() => {}
                () = &mut rest => {
                    let due = *self.ends() + REST;
                    if due <= Instant::now() {
                        return;
                    }
                    rest.as_mut().reset(due);
                }
            }
        }
    }

    /// Polls until the time after the last step is over.
    async fn watch(&self) {
        while Instant::now() < *self.ends() {
            // Yielding runs all ready tasks, and polls the sockets without waiting.
            yield_now().await;
        }
    }

    fn ends(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.0.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Wake},
    };

    use super::*;

    /// Counts how often it is asked to look again.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How often a keeper looks again after a step, in as many polls.
    async fn looks(length: Duration, polls: usize) -> usize {
        let busy_poll = BusyPoll::new(length, || {});
        let mut keeper = pin!(busy_poll.clone().keep());
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let mut context = Context::from_waker(&waker);
        assert!(keeper.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "nothing has happened yet");
        busy_poll.extend();
        let mut looks = 0;
        for _ in 0..polls {
            wakes.0.store(0, Ordering::SeqCst);
            assert!(keeper.as_mut().poll(&mut context).is_pending());
            // What is put off to the end of a turn of the runtime is woken there.
            yield_now().await;
            looks += wakes.0.load(Ordering::SeqCst);
        }
        looks
    }

    #[tokio::test]
    async fn after_a_step_it_looks_and_does_not_sleep() {
        assert_eq!(looks(Duration::from_secs(3600), 5).await, 5);
    }

    #[tokio::test]
    async fn a_vigil_ends() {
        assert_eq!(looks(Duration::from_nanos(1), 5).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn rest_comes_once_after_the_last_step() {
        static RESTS: AtomicUsize = AtomicUsize::new(0);
        let busy_poll = BusyPoll::new(Duration::ZERO, || {
            RESTS.fetch_add(1, Ordering::SeqCst);
        });
        let mut keeper = tokio::task::JoinSet::new();
        keeper.spawn(busy_poll.clone().keep());
        for _ in 0..3 {
            busy_poll.extend();
            tokio::time::sleep(REST / 2).await;
            assert_eq!(RESTS.load(Ordering::SeqCst), 0, "calls go on");
        }
        tokio::time::sleep(REST * 5).await;
        assert_eq!(RESTS.load(Ordering::SeqCst), 1);
    }
}
