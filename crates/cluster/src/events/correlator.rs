use std::{
    hash::{BuildHasher, Hash, RandomState},
    time::Duration,
};

use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use tokio::time::Instant;

use super::{QueuedEvent, lru::Lru};

/// With so many texts under one reason, they are combined into one event.
const SIMILAR: usize = 10;
/// Texts older than this do not count as similar.
const SIMILAR_FOR: Duration = Duration::from_mins(10);
/// Events about one object that may follow each other at once.
const BURST: u32 = 25;
/// Time after which the object may have one more.
const REFILL: Duration = Duration::from_mins(5);

/// Limits floods of events with client-go's figures: repetitions are counted, similar events are
/// combined, and events about an object are rate-limited.
///
/// Keys are 64-bit hashes: two events with the same hash would be counted as one, which is too
/// unlikely to matter.
pub(super) struct Correlator {
    hasher: RandomState,
    budgets: Lru<Budget>,
    groups: Lru<Group>,
    entries: Lru<Entry>,
}

/// An event's state, counting the one to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The API object that it was last written to.
    pub(super) name: Option<String>,
    /// How often the event occurred.
    pub(super) count: i32,
    /// When it first occurred.
    pub(super) first: Timestamp,
}

/// An event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Correlated {
    pub(super) entry: Entry,
    pub(super) message: String,
    /// Where to keep the name of the API object.
    pub(super) key: u64,
}

impl Correlator {
    /// A correlator that keeps the state of so many events.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            budgets: Lru::new(capacity),
            groups: Lru::new(capacity),
            entries: Lru::new(capacity),
        }
    }

    /// The event to write; `None` if the object is over its limit.
    pub(super) fn correlate(&mut self, event: &QueuedEvent, now: Instant) -> Option<Correlated> {
        let QueuedEvent { about, kind, reason, message } = event;
        let subject = (identity(about), *kind as u8);
        let group = self.hasher.hash_one((&subject, reason));
        let text = self.hasher.hash_one(message);
        let similar = self.groups.entry(group, || Group::new(now)).add(text, now);
        let (key, message) = match similar {
            true => (group, format!("(combined from similar events): {message}")),
            false => (self.hasher.hash_one((group, text)), message.clone()),
        };
        let entry =
            self.entries.entry(key, || Entry { name: None, count: 0, first: Timestamp::now() });
        entry.count = entry.count.saturating_add(1);
        let entry = entry.clone();
        let subject = self.hasher.hash_one(&subject);
        let affordable = self.budgets.entry(subject, || Budget::new(now)).take(now);
        affordable.then_some(Correlated { entry, message, key })
    }

    /// Records the name of the API object that the event was written to.
    pub(super) fn written(&mut self, Correlated { entry, key, .. }: Correlated, name: String) {
        let Entry { count, first, .. } = entry;
        self.entries.entry(key, || Entry { name: None, count, first }).name = Some(name);
    }
}

fn identity(about: &ObjectReference) -> impl Hash + '_ {
    (&about.kind, &about.namespace, &about.name, &about.uid, &about.api_version, &about.field_path)
}

/// Events about one object that differ in their text only.
struct Group {
    texts: Vec<u64>,
    last: Instant,
}

impl Group {
    fn new(now: Instant) -> Self {
        Self { texts: Vec::new(), last: now }
    }

    /// Whether the texts are too many to keep apart.
    fn add(&mut self, text: u64, now: Instant) -> bool {
        if now.duration_since(self.last) > SIMILAR_FOR {
            self.texts.clear();
        }
        self.last = now;
        if !self.texts.contains(&text) {
            self.texts.push(text);
        }
        let many = self.texts.len() >= SIMILAR;
        if many {
            self.texts.remove(0);
        }
        many
    }
}

/// The events that an object may still have.
struct Budget {
    left: u32,
    /// When the last one was added.
    since: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        while self.left < BURST && now.duration_since(self.since) >= REFILL {
            self.left += 1;
            self.since += REFILL;
        }
        if self.left == BURST {
            self.since = now;
        }
        let affordable = self.left > 0;
        self.left = self.left.saturating_sub(1);
        affordable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventType;

    fn event(name: &str, reason: &'static str, message: &str) -> QueuedEvent {
        let about = ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() };
        QueuedEvent { about, kind: EventType::Warning, reason, message: message.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_again_is_counted() {
        let mut correlator = Correlator::new(100);
        let now = Instant::now();
        let first = correlator.correlate(&event("a", "Failed", "no"), now).unwrap();
        assert_eq!((first.entry.count, first.entry.name.as_deref()), (1, None));
        correlator.written(first, "a.1".to_owned());
        let again = correlator.correlate(&event("a", "Failed", "no"), now).unwrap();
        assert_eq!((again.entry.count, again.entry.name.as_deref()), (2, Some("a.1")));
        for other in
            [event("b", "Failed", "no"), event("a", "Else", "no"), event("a", "Failed", "x")]
        {
            assert_eq!(correlator.correlate(&other, now).unwrap().entry.count, 1, "{other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_are_much_the_same_become_one() {
        let mut correlator = Correlator::new(100);
        let begin = Instant::now();
        let mut record = |number: u32, at: Instant| {
            correlator.correlate(&event("a", "Failed", &format!("no {number}")), at).unwrap()
        };
        for number in 1..SIMILAR as u32 {
            assert_eq!(record(number, begin).message, format!("no {number}"));
        }
        let combined = record(10, begin);
        assert_eq!(combined.message, "(combined from similar events): no 10");
        let next = record(11, begin);
        assert_eq!(next.message, "(combined from similar events): no 11");
        assert_eq!((next.key, next.entry.count), (combined.key, 2));
        let later = begin + SIMILAR_FOR + Duration::from_secs(1);
        assert_eq!(record(12, later).message, "no 12");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_never_rests_has_fewer_events() {
        let mut correlator = Correlator::new(100);
        let begin = Instant::now();
        let mut count = |at: Instant| {
            let repeated = event("a", "Failed", "no");
            (0..BURST * 2).filter(|_| correlator.correlate(&repeated, at).is_some()).count()
        };
        assert_eq!(count(begin), 25);
        assert_eq!(count(begin + REFILL), 1);
        assert_eq!(count(begin + REFILL * 4), 3);
        assert_eq!(count(begin + REFILL * 1000), 25);
    }
}
