//! Which key runs next: a state machine over keys, without clock, tasks or I/O.
//!
//! A key is in the queue only while it is queued, running or waiting for a retry. `ready` is
//! ordered by arrival and `waiting` by due time, so every step costs the logarithm of the number of
//! keys.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::{Duration, Instant},
};

use crate::{Backoff, Outcome};

/// State of a key that is queued, running or backing off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The phase of the key.
    pub phase: Phase,
    /// Runs of this generation that failed in a row.
    pub failures: u32,
    /// The generation that runs, or will.
    pub generation: u64,
}

/// Phase of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Queued, until a permit is free.
    Queued,
    /// An operation runs for it.
    Running {
        /// It will run once more after this one.
        again: bool,
    },
    /// It failed and will be queued at this time.
    BackingOff {
        /// When it is queued again.
        until: Instant,
    },
}

/// A run to be started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Start<K> {
    pub(crate) key: K,
    pub(crate) generation: u64,
    pub(crate) failures: u32,
    /// How long the key was queued.
    pub(crate) waited: Duration,
}

/// Events since the last [`Queue::take_tally`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Keys queued.
    pub(crate) adds: u64,
    /// Runs that ended in a retry.
    pub(crate) retries: u64,
}

/// The longest wait: every clock can represent it.
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A key that is pending for this long is named in the log.
pub(crate) const LONG_PENDING: Duration = Duration::from_mins(5);
/// Time between two searches for such keys: a search visits every key.
const BETWEEN_LOOKS: Duration = Duration::from_secs(10);

/// A key that has been pending for [`LONG_PENDING`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LongPending<K> {
    pub(crate) key: K,
    pub(crate) age: Duration,
    pub(crate) failures: u32,
    /// Why the last run failed, if the operation noted it.
    pub(crate) error: Option<Box<str>>,
}

/// The keys of one reconciler.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    parallelism: usize,
    backoff: Backoff,
    entries: HashMap<K, Entry>,
    ready: BTreeMap<u64, K>,
    waiting: BTreeMap<(Instant, u64), K>,
    running: usize,
    closed: bool,
    /// The last ticket given out, for a place in a queue or a generation.
    tickets: u64,
    tally: Tally,
    /// When to search for keys that are pending for long; `None` when all pending keys were named.
    look_at: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    /// When the pending work of the key began.
    since: Instant,
    generation: u64,
    failures: u32,
    /// Steps of the back-off that were used.
    steps: u32,
    place: Place,
    /// Whether the log has named it as pending for long.
    named: bool,
    /// Why the last run failed, if the operation noted it.
    error: Option<Box<str>>,
}

impl Entry {
    /// New work begins for the key: clears its age, failures and error.
    fn begin_again(&mut self, now: Instant) {
        self.since = now;
        self.failures = 0;
        self.steps = 0;
        self.named = false;
        self.error = None;
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Ready(u64, Instant),
    Waiting(Instant, u64),
    Running(Next),
}

/// Follows the end of a running key's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The outcome decides.
    Outcome,
    /// Runs again if the outcome is `Done`; a failure backs off first.
    Again,
    /// Runs again whatever the outcome, with its failures cleared.
    Afresh,
    /// Nothing, whatever the outcome.
    Forgotten,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    pub(crate) fn new(parallelism: usize, backoff: Backoff) -> Self {
        Self {
            parallelism: parallelism.max(1),
            backoff,
            entries: HashMap::new(),
            ready: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: 0,
            closed: false,
            tickets: 0,
            tally: Tally::default(),
            look_at: None,
        }
    }

    /// Something about the key may have changed.
    pub(crate) fn wake(&mut self, key: K, now: Instant) {
        if self.closed {
            return;
        }
        let Some(entry) = self.entries.get_mut(&key) else { return self.enter(key, now) };
        if let Place::Running(next) = &mut entry.place {
            *next = match *next {
                Next::Outcome | Next::Again => Next::Again,
                Next::Afresh | Next::Forgotten => Next::Afresh,
            };
        }
    }

    /// The key names a new object. True if a run for the old object goes on.
    pub(crate) fn renew(&mut self, key: K, now: Instant) -> bool {
        if self.closed {
            return false;
        }
        let generation = self.ticket();
        let Some(entry) = self.entries.get_mut(&key) else {
            self.enter(key, now);
            return false;
        };
        entry.begin_again(now);
        entry.generation = generation;
        self.look_at.get_or_insert(now + LONG_PENDING);
        match entry.place {
            Place::Ready(..) => false,
            Place::Running(_) => {
                entry.place = Place::Running(Next::Afresh);
                true
            }
            Place::Waiting(until, seat) => {
                self.waiting.remove(&(until, seat));
                self.line_up(key, now);
                false
            }
        }
    }

    /// Drops the key; a run that goes on is not followed by another.
    pub(crate) fn forget(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        match entry.place {
            Place::Running(_) => {
                entry.failures = 0;
                entry.steps = 0;
                entry.place = Place::Running(Next::Forgotten);
                return;
            }
            Place::Ready(seat, _) => drop(self.ready.remove(&seat)),
            Place::Waiting(until, seat) => drop(self.waiting.remove(&(until, seat))),
        }
        self.entries.remove(key);
    }

    /// The next key to run at `now`; `None` if none is queued or all permits are in use.
    pub(crate) fn start(&mut self, now: Instant) -> Option<Start<K>> {
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            self.line_up(key, now);
        }
        if self.running >= self.parallelism {
            return None;
        }
        let (_, key) = self.ready.pop_first()?;
        let entry = self.entries.get_mut(&key).expect("a key in line has an entry");
        let waited = match entry.place {
            Place::Ready(_, since) => now.saturating_duration_since(since),
            _ => Duration::ZERO,
        };
        entry.place = Place::Running(Next::Outcome);
        self.running += 1;
        Some(Start { key, generation: entry.generation, failures: entry.failures, waited })
    }

    /// The run of `key` has ended.
    pub(crate) fn finish(&mut self, key: K, outcome: Outcome, now: Instant) {
        let entry = self.entries.get_mut(&key).expect("a running key has an entry");
        let Place::Running(next) = entry.place else {
            unreachable!("a key in line cannot finish");
        };
        self.running -= 1;
        let delay = match (next, outcome) {
            (Next::Forgotten, _) | (Next::Outcome, Outcome::Done) => {
                self.entries.remove(&key);
                return;
            }
            _ if self.closed => {
                self.entries.remove(&key);
                return;
            }
            (Next::Afresh, _) => return self.line_up(key, now),
            (Next::Again, Outcome::Done) => {
                entry.begin_again(now);
                self.look_at.get_or_insert(now + LONG_PENDING);
                return self.line_up(key, now);
            }
            (_, Outcome::Retry) => {
                entry.steps = entry.steps.saturating_add(1);
                self.backoff.delay(entry.steps)
            }
            (_, Outcome::RetryAfter(delay)) => delay,
        };
        entry.failures = entry.failures.saturating_add(1);
        self.tally.retries += 1;
        self.tickets += 1;
        let until = now + delay.min(YEAR);
        entry.place = Place::Waiting(until, self.tickets);
        self.waiting.insert((until, self.tickets), key);
    }

    /// Accepts no new keys and drops those that do not run.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.ready.clear();
        self.waiting.clear();
        self.entries.retain(|_, entry| matches!(entry.place, Place::Running(_)));
    }

    /// When [`Queue::start`] must be called next, if no other call comes before. Queued keys need
    /// no time: they start when a run ends.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((until, _), _)| *until)
    }

    /// Whether no key runs and none is queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.running == 0 && self.ready.is_empty()
    }

    /// The age of the key that has been pending longest, as the time when its work began.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.entries.values().map(|entry| entry.since).min()
    }

    /// Notes why the last run of a pending key failed.
    pub(crate) fn note_error(&mut self, key: &K, error: Option<Box<str>>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.error = error;
        }
    }

    /// When [`Queue::long_pending`] must be called next; `None` while no key is pending.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.look_at.filter(|_| !self.entries.is_empty())
    }

    /// Keys that have become pending for long since the last call, each once.
    pub(crate) fn long_pending(&mut self, now: Instant) -> Vec<LongPending<K>> {
        if self.look_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut next: Option<Instant> = None;
        for (key, entry) in self.entries.iter_mut().filter(|(_, entry)| !entry.named) {
            let age = now.saturating_duration_since(entry.since);
            if age < LONG_PENDING {
                next = Some(next.map_or(entry.since, |next| next.min(entry.since)));
                continue;
            }
            entry.named = true;
            let (failures, error) = (entry.failures, entry.error.clone());
            found.push(LongPending { key: key.clone(), age, failures, error });
        }
        self.look_at = next.map(|since| (since + LONG_PENDING).max(now + BETWEEN_LOOKS));
        found
    }

    /// Number of queued keys.
    pub(crate) fn depth(&self) -> usize {
        self.ready.len()
    }

    /// Events since the last call.
    pub(crate) fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    pub(crate) fn state(&self, key: &K) -> Option<KeyState> {
        let entry = self.entries.get(key)?;
        let phase = match entry.place {
            Place::Ready(..) => Phase::Queued,
            Place::Waiting(until, _) => Phase::BackingOff { until },
            Place::Running(next) => {
                Phase::Running { again: matches!(next, Next::Again | Next::Afresh) }
            }
        };
        Some(KeyState { phase, failures: entry.failures, generation: entry.generation })
    }

    fn enter(&mut self, key: K, now: Instant) {
        let generation = self.ticket();
        let place = Place::Ready(0, now);
        let entry = Entry {
            since: now,
            generation,
            failures: 0,
            steps: 0,
            place,
            named: false,
            error: None,
        };
        self.entries.insert(key.clone(), entry);
        self.look_at.get_or_insert(now + LONG_PENDING);
        self.line_up(key, now);
    }

    fn line_up(&mut self, key: K, now: Instant) {
        self.tally.adds += 1;
        let seat = self.ticket();
        let entry = self.entries.get_mut(&key).expect("a key that lines up has an entry");
        entry.place = Place::Ready(seat, now);
        self.ready.insert(seat, key);
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}

#[cfg(test)]
mod tests;
