//! A semaphore that is fair between nodes.
//!
//! Nodes take permits, also one whose volumes hang or that a hundred pods move to. In a first-come,
//! first-served queue all others would wait for that node.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};
use wharf_cluster::Key;

/// Limits concurrent operations.
#[derive(Debug)]
pub(super) struct FairSemaphore(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: HashMap<Key, VecDeque<Waiter>>,
    /// The waiting nodes, the next one first.
    round: VecDeque<Key>,
}

#[derive(Debug)]
struct Waiter {
    since: Instant,
    permit: oneshot::Sender<Permit>,
}

/// Returned to the semaphore when it is dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<FairSemaphore>);

impl FairSemaphore {
    pub(super) fn new(permits: usize) -> Self {
        let free = permits.max(1);
        Self(Mutex::new(State { free, waiting: HashMap::new(), round: VecDeque::new() }))
    }

    /// Waits for a permit for `node`. A cancelled wait loses only its place.
    pub(super) async fn acquire(self: &Arc<Self>, node: Key) -> Permit {
        let permit = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                return Permit(Arc::clone(self));
            }
            let (permit, given) = oneshot::channel();
            let State { waiting, round, .. } = &mut *state;
            let queue = waiting.entry(Arc::clone(&node)).or_insert_with(|| {
                round.push_back(node);
                VecDeque::new()
            });
            queue.push_back(Waiter { since: Instant::now(), permit });
            given
        };
        permit.await.expect("a waiter leaves the queue with a permit")
    }

    /// The number of waiters, and the longest wait.
    pub(super) fn waiting(&self) -> (usize, Duration) {
        let state = self.state();
        let waiters = state.waiting.values().flatten().filter(|it| !it.permit.is_closed());
        waiters.fold((0, Duration::ZERO), |(count, longest), waiter| {
            (count + 1, longest.max(waiter.since.elapsed()))
        })
    }

    /// The next waiter in the round; `None` if there is none and the permit was returned.
    fn next(&self) -> Option<Waiter> {
        let mut state = self.state();
        let Some(node) = state.round.pop_front() else {
            state.free += 1;
            return None;
        };
        let queue = state.waiting.get_mut(&node).expect("a node in the round has a queue");
        let waiter = queue.pop_front().expect("a queue in the round has waiters");
        if queue.is_empty() {
            state.waiting.remove(&node);
        } else {
            state.round.push_back(node);
        }
        Some(waiter)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // Cancelled waiters are found here: their channel is closed.
        while let Some(waiter) = self.0.next() {
            if waiter.permit.is_closed() {
                continue;
            }
            // If the channel closes just now, the returned permit is dropped and goes to the next
            // waiter in the same way.
            drop(waiter.permit.send(Permit(Arc::clone(&self.0))));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::Pin};

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Permit> + Send>>;

    /// Begins to wait for a permit that is not free yet.
    fn queue_up(semaphore: &Arc<FairSemaphore>, node: &str) -> Waiting {
        let (semaphore, node) = (Arc::clone(semaphore), Key::from(node));
        let mut waiting: Waiting = Box::pin(async move { semaphore.acquire(node).await });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        waiting
    }

    /// The first waiter that has a permit.
    async fn first(waiting: &mut Vec<(&'static str, Waiting)>) -> (&'static str, Permit) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for at in 0..waiting.len() {
            if let std::task::Poll::Ready(permit) = waiting[at].1.as_mut().poll(&mut context) {
                return (waiting.remove(at).0, permit);
            }
        }
        panic!("no waiter has a permit");
    }

    #[tokio::test]
    async fn nodes_take_turns() {
        let semaphore = Arc::new(FairSemaphore::new(1));
        let mut permit = semaphore.acquire("a".into()).await;
        let mut waiting: Vec<_> =
            [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("b2", "b")]
                .map(|(name, node)| (name, queue_up(&semaphore, node)))
                .into();
        assert_eq!(semaphore.waiting().0, 6);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(permit);
            let (name, next) = first(&mut waiting).await;
            order.push(name);
            permit = next;
        }
        assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "a3"]);
    }

    #[tokio::test]
    async fn turns_of_those_who_left_go_to_others() {
        let semaphore = Arc::new(FairSemaphore::new(1));
        let permit = semaphore.acquire("a".into()).await;
        let (left, later) = (queue_up(&semaphore, "a"), queue_up(&semaphore, "b"));
        drop(left);
        assert_eq!(semaphore.waiting().0, 1);
        drop(permit);
        // Given, and dropped before it was taken.
        let last = queue_up(&semaphore, "c");
        drop(later);
        drop(last.await);
        let again = semaphore.acquire("d".into()).await;
        assert_eq!(semaphore.waiting(), (0, Duration::ZERO));
        drop(again);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_counts() {
        let semaphore = Arc::new(FairSemaphore::new(1));
        let _permit = semaphore.acquire("a".into()).await;
        let _first = queue_up(&semaphore, "a");
        tokio::time::advance(Duration::from_secs(3)).await;
        let _second = queue_up(&semaphore, "b");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(semaphore.waiting(), (2, Duration::from_secs(4)));
    }
}
