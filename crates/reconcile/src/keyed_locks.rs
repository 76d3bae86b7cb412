//! A lock per key, for work that several operations share: holders of one key follow each other in
//! the order in which they asked, and keys do not block each other.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// Locks by key. Clones share them; a key that nobody holds or waits for takes no memory.
#[derive(Clone, Debug, Default)]
pub struct KeyedLocks(Arc<Mutex<HashMap<String, Lock>>>);

/// Holds the lock of a key until it is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct KeyGuard {
    locks: KeyedLocks,
    key: String,
    lock: Option<Lock>,
    held: Option<OwnedMutexGuard<()>>,
}

impl KeyedLocks {
    /// Waits for earlier holders of the key. Cancel safe.
    pub async fn lock(&self, key: &str) -> KeyGuard {
        let lock = self.by_key().entry(key.to_owned()).or_default().clone();
        let mut guard = KeyGuard {
            locks: self.clone(),
            key: key.to_owned(),
            lock: Some(lock.clone()),
            held: None,
        };
        guard.held = Some(lock.lock_owned().await);
        guard
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<String, Lock>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyGuard {
    /// The last holder or waiter of a key removes its lock.
    fn drop(&mut self) {
        let mut locks = self.locks.by_key();
        self.held = None;
        self.lock = None;
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn in_the_order_of_arrival_and_nothing_stays() {
        let locks = KeyedLocks::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = Box::pin(locks.lock("a"));
        let Poll::Ready(first) = first.as_mut().poll(&mut cx) else { panic!("nobody was before") };
        let mut second = Box::pin(locks.lock("a"));
        let mut third = Box::pin(locks.lock("a"));
        let mut impatient = Box::pin(locks.lock("a"));
        for waiting in [&mut second, &mut third, &mut impatient] {
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
        }
        let mut other = Box::pin(locks.lock("b"));
        assert!(other.as_mut().poll(&mut cx).is_ready());

        drop(first);
        assert!(third.as_mut().poll(&mut cx).is_pending());
        let Poll::Ready(second) = second.as_mut().poll(&mut cx) else { panic!("it is its turn") };
        drop(second);
        let Poll::Ready(third) = third.as_mut().poll(&mut cx) else { panic!("it is its turn") };
        drop(third);
        drop(impatient);
        assert!(locks.by_key().is_empty());
    }
}
