//! Turns: a bounded number at a time, and fair between nodes.
//!
//! A node whose volumes hang, or that a hundred pods move to, takes its turns one after another with all other nodes. A
//! queue that is first come, first served would make those wait for all of it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};
use wharf_cluster::Key;

/// A number of turns.
#[derive(Debug)]
pub(super) struct Lane(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: HashMap<Key, VecDeque<Waiter>>,
    /// The nodes that wait, in the order in which they are next.
    round: VecDeque<Key>,
}

#[derive(Debug)]
struct Waiter {
    since: Instant,
    turn: oneshot::Sender<Turn>,
}

/// Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn(Arc<Lane>);

impl Lane {
    pub(super) fn new(turns: usize) -> Self {
        let free = turns.max(1);
        Self(Mutex::new(State { free, waiting: HashMap::new(), round: VecDeque::new() }))
    }

    /// Waits for a turn of `node`. Whoever stops waiting has lost nothing but its place.
    pub(super) async fn enter(self: &Arc<Self>, node: Key) -> Turn {
        let turn = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                return Turn(Arc::clone(self));
            }
            let (turn, given) = oneshot::channel();
            let State { waiting, round, .. } = &mut *state;
            let line = waiting.entry(Arc::clone(&node)).or_insert_with(|| {
                round.push_back(node);
                VecDeque::new()
            });
            line.push_back(Waiter { since: Instant::now(), turn });
            given
        };
        turn.await.expect("a waiter leaves the lane with a turn")
    }

    /// How many wait, and how long the first of them has.
    pub(super) fn waiting(&self) -> (usize, Duration) {
        let state = self.state();
        let waiters = state.waiting.values().flatten().filter(|it| !it.turn.is_closed());
        waiters.fold((0, Duration::ZERO), |(count, longest), waiter| {
            (count + 1, longest.max(waiter.since.elapsed()))
        })
    }

    /// The next in the round; `None` gives the turn back.
    fn next(&self) -> Option<Waiter> {
        let mut state = self.state();
        let Some(node) = state.round.pop_front() else {
            state.free += 1;
            return None;
        };
        let line = state.waiting.get_mut(&node).expect("a node in the round has a line");
        let waiter = line.pop_front().expect("a line in the round has waiters");
        if line.is_empty() {
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

impl Drop for Turn {
    fn drop(&mut self) {
        // Those who stopped waiting are found here: their channel is closed.
        while let Some(waiter) = self.0.next() {
            if waiter.turn.is_closed() {
                continue;
            }
            // Should it close just now, the turn that comes back is dropped, and goes to the next in the same way.
            drop(waiter.turn.send(Turn(Arc::clone(&self.0))));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Turn> + Send>>;

    /// Lines up for a turn that is not to be had yet.
    fn line_up(lane: &Arc<Lane>, node: &str) -> Waiting {
        let (lane, node) = (Arc::clone(lane), Key::from(node));
        let mut waiting: Waiting = Box::pin(async move { lane.enter(node).await });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        waiting
    }

    /// Which of those who wait has its turn.
    async fn first(waiting: &mut Vec<(&'static str, Waiting)>) -> (&'static str, Turn) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for at in 0..waiting.len() {
            if let std::task::Poll::Ready(turn) = waiting[at].1.as_mut().poll(&mut context) {
                return (waiting.remove(at).0, turn);
            }
        }
        panic!("nobody has a turn");
    }

    #[tokio::test]
    async fn nodes_take_turns() {
        let lane = Arc::new(Lane::new(1));
        let mut turn = lane.enter("a".into()).await;
        let mut waiting: Vec<_> =
            [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("b2", "b")]
                .map(|(name, node)| (name, line_up(&lane, node)))
                .into();
        assert_eq!(lane.waiting().0, 6);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(turn);
            let (name, next) = first(&mut waiting).await;
            order.push(name);
            turn = next;
        }
        assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "a3"]);
    }

    #[tokio::test]
    async fn turns_of_those_who_left_go_to_others() {
        let lane = Arc::new(Lane::new(1));
        let turn = lane.enter("a".into()).await;
        let (left, later) = (line_up(&lane, "a"), line_up(&lane, "b"));
        drop(left);
        assert_eq!(lane.waiting().0, 1);
        drop(turn);
        // Given, and dropped before it was taken.
        let last = line_up(&lane, "c");
        drop(later);
        drop(last.await);
        let again = lane.enter("d".into()).await;
        assert_eq!(lane.waiting(), (0, Duration::ZERO));
        drop(again);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_counts() {
        let lane = Arc::new(Lane::new(1));
        let _turn = lane.enter("a".into()).await;
        let _first = line_up(&lane, "a");
        tokio::time::advance(Duration::from_secs(3)).await;
        let _second = line_up(&lane, "b");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(lane.waiting(), (2, Duration::from_secs(4)));
    }
}
