//! Turns by key, for work that is no operation of one key: those with the same key go in the order in which they
//! came, and nobody waits for another key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

type Queue = Arc<tokio::sync::Mutex<()>>;

/// Whose turn it is, by key. Clones share the queues.
#[derive(Clone, Debug, Default)]
pub struct Turns(Arc<Mutex<HashMap<String, Queue>>>);

/// The right to go, until it is dropped.
#[derive(Debug)]
#[must_use = "a turn ends when it is dropped"]
pub struct Turn {
    turns: Turns,
    key: String,
    queue: Option<Queue>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for those that came before.
    pub async fn take(&self, key: &str) -> Turn {
        let queue = self.queues().entry(key.to_owned()).or_default().clone();
        let mut turn = Turn {
            turns: self.clone(),
            key: key.to_owned(),
            queue: Some(queue.clone()),
            held: None,
        };
        turn.held = Some(queue.lock_owned().await);
        turn
    }

    fn queues(&self) -> std::sync::MutexGuard<'_, HashMap<String, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    /// The last one to go, or to stop waiting, takes the queue with it.
    fn drop(&mut self) {
        let mut queues = self.turns.queues();
        self.held = None;
        self.queue = None;
        if queues.get(&self.key).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn in_the_order_of_arrival_and_nothing_stays() {
        let turns = Turns::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = Box::pin(turns.take("a"));
        let Poll::Ready(first) = first.as_mut().poll(&mut cx) else { panic!("nobody was before") };
        let mut second = Box::pin(turns.take("a"));
        let mut third = Box::pin(turns.take("a"));
        let mut impatient = Box::pin(turns.take("a"));
        for waiting in [&mut second, &mut third, &mut impatient] {
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
        }
        let mut other = Box::pin(turns.take("b"));
        assert!(other.as_mut().poll(&mut cx).is_ready());

        drop(first);
        assert!(third.as_mut().poll(&mut cx).is_pending());
        let Poll::Ready(second) = second.as_mut().poll(&mut cx) else { panic!("it is its turn") };
        drop(second);
        let Poll::Ready(third) = third.as_mut().poll(&mut cx) else { panic!("it is its turn") };
        drop(third);
        drop(impatient);
        assert!(turns.queues().is_empty());
    }
}
