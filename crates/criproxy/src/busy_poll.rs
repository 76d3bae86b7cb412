//! Staying awake for the next bytes.
//!
//! A call through a proxy wakes it twice, and on an idle machine to wake a thread takes longer than all that the proxy does
//! in between: the processor has gone to sleep with it. So for a moment after each step of a call, when the next is about
//! to come, the thread looks for it instead of sleeping. Between calls it sleeps.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{Instant, sleep_until};

/// Calls are over when none has made a step for this long.
const REST: Duration = Duration::from_secs(1);

/// A lookout for the next step of a call. Clones are one lookout.
#[derive(Clone, Debug)]
pub(crate) struct Vigil(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    length: Duration,
    ends: Mutex<Instant>,
    stepped: Notify,
    at_rest: fn(),
}

impl Vigil {
    /// One that lasts for `length` after each step. `at_rest` is called once there was none for a second.
    pub(crate) fn new(length: Duration, at_rest: fn()) -> Vigil {
        let (ends, stepped) = (Mutex::new(Instant::now()), Notify::new());
        Vigil(Arc::new(Shared { length, ends, stepped, at_rest }))
    }

    /// A step has been made, and another will follow.
    pub(crate) fn extend(&self) {
        *self.ends() = Instant::now() + self.0.length;
        self.0.stepped.notify_one();
    }

    /// Keeps the thread awake whenever it should be.
    pub(crate) async fn keep(self) {
        loop {
            self.0.stepped.notified().await;
            self.until_rest().await;
            // It may take its time. If it panics, there is nothing to give back.
            let _ = spawn_blocking(self.0.at_rest).await;
        }
    }

    /// Watches after each step, until there was none for long enough. One timer serves all steps: to set the next one
    /// that goes off takes a system call.
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

    /// Looks until the vigil ends.
    async fn watch(&self) {
        while Instant::now() < *self.ends() {
            // All that is ready runs meanwhile, and the sockets are looked at without waiting.
            yield_now().await;
        }
    }

    fn ends(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.0.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

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
        let vigil = Vigil::new(length, || {});
        let mut keeper = pin!(vigil.clone().keep());
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let mut context = Context::from_waker(&waker);
        assert!(keeper.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "nothing has happened yet");
        vigil.extend();
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
        let vigil = Vigil::new(Duration::ZERO, || {
            RESTS.fetch_add(1, Ordering::SeqCst);
        });
        let mut keeper = tokio::task::JoinSet::new();
        keeper.spawn(vigil.clone().keep());
        for _ in 0..3 {
            vigil.extend();
            tokio::time::sleep(REST / 2).await;
            assert_eq!(RESTS.load(Ordering::SeqCst), 0, "calls go on");
        }
        tokio::time::sleep(REST * 5).await;
        assert_eq!(RESTS.load(Ordering::SeqCst), 1);
    }
}
