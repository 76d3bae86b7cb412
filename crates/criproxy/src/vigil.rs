//! Staying awake for the next bytes.
//!
//! A call through a proxy wakes it twice, and on an idle machine to wake a thread takes longer than all that the proxy does
//! in between: the processor has gone to sleep with it. So for a moment after each step of a call, when the next is about
//! to come, the thread looks for it instead of sleeping. Between calls it sleeps.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::yield_now;

/// A lookout for the next step of a call. Clones are one lookout.
#[derive(Clone, Debug)]
pub(crate) struct Vigil(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    length: Duration,
    ends: Mutex<Instant>,
    begun: Notify,
}

impl Vigil {
    /// One that lasts for `length` after each step; none where that is zero.
    pub(crate) fn new(length: Duration) -> Vigil {
        Vigil(Arc::new(Shared { length, ends: Mutex::new(Instant::now()), begun: Notify::new() }))
    }

    /// A step has been made, and another will follow.
    pub(crate) fn extend(&self) {
        if !self.0.length.is_zero() {
            *self.ends() = Instant::now() + self.0.length;
            self.0.begun.notify_one();
        }
    }

    /// Keeps the thread awake whenever it should be.
    pub(crate) async fn keep(self) {
        loop {
            self.0.begun.notified().await;
            while Instant::now() < *self.ends() {
                // All that is ready runs meanwhile, and the sockets are looked at without waiting.
                yield_now().await;
            }
        }
    }

    fn ends(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.0.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
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
    fn looks(length: Duration, polls: usize) -> usize {
        let vigil = Vigil::new(length);
        let mut keeper = pin!(vigil.clone().keep());
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let mut context = Context::from_waker(&waker);
        assert!(keeper.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "nothing has happened yet");
        vigil.extend();
        wakes.0.store(0, Ordering::SeqCst);
        for _ in 0..polls {
            assert!(keeper.as_mut().poll(&mut context).is_pending());
        }
        wakes.0.load(Ordering::SeqCst)
    }

    #[test]
    fn after_a_step_it_looks_and_does_not_sleep() {
        assert_eq!(looks(Duration::from_secs(3600), 5), 5);
    }

    #[test]
    fn a_vigil_ends() {
        assert_eq!(looks(Duration::from_nanos(1), 5), 0);
    }

    #[test]
    fn without_length_there_is_none() {
        assert_eq!(looks(Duration::ZERO, 5), 0);
    }
}
