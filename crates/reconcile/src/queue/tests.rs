//! Compares the queue with a simple, slow model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(10), max: Duration::from_millis(70) };

/// The promises of the queue, written down key by key.
#[derive(Debug, Default)]
struct Model {
    now: u64,
    /// Queued keys, first come, first served.
    line: Vec<u8>,
    /// Due time by key, in the order of failing.
    waits: Vec<(u8, u64)>,
    running: BTreeMap<u8, Running>,
    failures: BTreeMap<u8, (u32, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Running {
    woken: bool,
    afresh: bool,
    forgotten: bool,
}

impl Model {
    fn wake(&mut self, key: u8) {
        if let Some(running) = self.running.get_mut(&key) {
            running.woken = true;
            running.afresh |= running.forgotten;
        } else if !self.line.contains(&key) && !self.waits.iter().any(|(wait, _)| *wait == key) {
            self.line.push(key);
        }
    }

    fn renew(&mut self, key: u8) -> bool {
        self.failures.remove(&key);
        if let Some(running) = self.running.get_mut(&key) {
            running.afresh = true;
            return true;
        }
        self.waits.retain(|(wait, _)| *wait != key);
        if !self.line.contains(&key) {
            self.line.push(key);
        }
        false
    }

    fn forget(&mut self, key: u8) {
        self.failures.remove(&key);
        self.line.retain(|queued| *queued != key);
        self.waits.retain(|(wait, _)| *wait != key);
        if let Some(running) = self.running.get_mut(&key) {
            *running = Running { forgotten: true, ..Running::default() };
        }
    }

    fn start(&mut self, parallelism: usize) -> Option<(u8, u32)> {
        let mut due: Vec<(u8, u64)> =
            self.waits.iter().copied().filter(|(_, at)| *at <= self.now).collect();
        due.sort_by_key(|(_, at)| *at);
        self.waits.retain(|(_, at)| *at > self.now);
        self.line.extend(due.iter().map(|(key, _)| *key));
        if self.running.len() >= parallelism || self.line.is_empty() {
            return None;
        }
        let key = self.line.remove(0);
        assert!(self.running.insert(key, Running::default()).is_none(), "two runs of {key}");
        Some((key, self.failures.get(&key).map_or(0, |(failures, _)| *failures)))
    }

    fn finish(&mut self, key: u8, outcome: Outcome) {
        let running = self.running.remove(&key).expect("only a running key finishes");
        let (failures, steps) = self.failures.get(&key).copied().unwrap_or_default();
        let step = u32::from(outcome == Outcome::Retry);
        let delay = match outcome {
            Outcome::RetryAfter(delay) => delay,
            Outcome::Done | Outcome::Retry => BACKOFF.delay(steps + step),
        };
        if running.afresh {
            self.line.push(key);
        } else if running.forgotten {
        } else if outcome == Outcome::Done {
            self.failures.remove(&key);
            if running.woken {
                self.line.push(key);
            }
        } else {
            self.failures.insert(key, (failures + 1, steps + step));
            self.waits.push((key, self.now + delay.as_millis() as u64));
        }
    }

    fn phase(&self, key: u8, base: Instant) -> Option<Phase> {
        if let Some(running) = self.running.get(&key) {
            let again = running.afresh || (running.woken && !running.forgotten);
            return Some(Phase::Running { again });
        }
        if self.line.contains(&key) {
            return Some(Phase::Queued);
        }
        let (_, at) = self.waits.iter().find(|(wait, _)| *wait == key)?;
        Some(Phase::BackingOff { until: base + Duration::from_millis(*at) })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wake(u8),
    Renew(u8),
    Forget(u8),
    Start,
    Finish(usize, Outcome),
    Advance(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..6u8;
    let outcome = prop_oneof![
        Just(Outcome::Done),
        Just(Outcome::Retry),
        (0..40u64).prop_map(|ms| Outcome::RetryAfter(Duration::from_millis(ms))),
    ];
    let step = prop_oneof![
        4 => key.clone().prop_map(Step::Wake),
        2 => key.clone().prop_map(Step::Renew),
        1 => key.prop_map(Step::Forget),
        6 => Just(Step::Start),
        4 => (any::<usize>(), outcome).prop_map(|(which, outcome)| Step::Finish(which, outcome)),
        2 => (0..60u64).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn does_what_the_model_does(parallelism in 1..4usize, steps in steps()) {
        let base = Instant::now();
        let at = |ms| base + Duration::from_millis(ms);
        let mut queue = Queue::new(parallelism, BACKOFF);
        let mut model = Model::default();
        let mut generations: BTreeMap<u8, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Wake(key) => {
                    queue.wake(key, at(model.now));
                    model.wake(key);
                }
                Step::Renew(key) => prop_assert_eq!(queue.renew(key, at(model.now)), model.renew(key)),
                Step::Forget(key) => {
                    queue.forget(&key);
                    model.forget(key);
                }
                Step::Start => {
                    let started = queue.start(at(model.now));
                    let expected = model.start(parallelism);
                    prop_assert_eq!(started.as_ref().map(|run| (run.key, run.failures)), expected);
                    if let Some(run) = started {
                        let last = generations.insert(run.key, run.generation);
                        prop_assert!(last.is_none_or(|last| last <= run.generation));
                    }
                }
                Step::Finish(which, outcome) => {
                    let running: Vec<u8> = model.running.keys().copied().collect();
                    if !running.is_empty() {
                        let key = running[which % running.len()];
                        queue.finish(key, outcome, at(model.now));
                        model.finish(key, outcome);
                    }
                }
                Step::Advance(ms) => model.now += ms,
            }
            for key in 0..6 {
                let phase = queue.state(&key).map(|state| state.phase);
                prop_assert_eq!(phase, model.phase(key, base), "key {}", key);
            }
            prop_assert_eq!(queue.due(), model.waits.iter().map(|(_, ms)| at(*ms)).min());
            prop_assert_eq!(queue.is_idle(), model.running.is_empty() && model.line.is_empty());
        }
        // Nothing is lost: with time and success everything runs, and nothing stays behind.
        for key in model.running.keys() {
            queue.finish(*key, Outcome::Done, at(model.now));
        }
        let pending = queue.entries.len();
        let mut ran = 0;
        while let Some(run) = queue.start(at(model.now + 1000)) {
            queue.finish(run.key, Outcome::Done, at(model.now + 1000));
            ran += 1;
        }
        prop_assert_eq!(ran, pending);
        prop_assert!(queue.entries.is_empty() && queue.ready.is_empty());
        prop_assert!(queue.waiting.is_empty() && queue.running == 0);
    }
}

#[test]
fn a_closed_queue_takes_nothing_and_keeps_only_what_runs() {
    let now = Instant::now();
    let mut queue = Queue::new(1, BACKOFF);
    queue.wake("runs", now);
    queue.wake("queued", now);
    assert_eq!(queue.start(now).map(|run| run.key), Some("runs"));
    queue.wake("runs", now);
    queue.close();
    queue.wake("late", now);
    assert!(!queue.renew("runs", now));
    assert_eq!(queue.entries.len(), 1);
    queue.finish("runs", Outcome::Retry, now);
    assert!(queue.entries.is_empty() && queue.is_idle() && queue.due().is_none());
}

#[test]
fn a_wait_beyond_the_clock_is_a_long_one() {
    let now = Instant::now();
    let mut queue = Queue::new(1, BACKOFF);
    queue.wake("key", now);
    queue.start(now);
    queue.finish("key", Outcome::RetryAfter(Duration::MAX), now);
    assert_eq!(queue.due(), Some(now + YEAR));
}

#[test]
fn what_happens_is_counted_and_timed() {
    let base = Instant::now();
    let at = |ms| base + Duration::from_millis(ms);
    let mut queue = Queue::new(1, BACKOFF);
    queue.wake("a", at(0));
    queue.wake("a", at(1));
    queue.wake("b", at(2));
    assert_eq!(queue.depth(), 2);
    assert_eq!(queue.start(at(5)).map(|run| run.waited.as_millis()), Some(5));
    queue.finish("a", Outcome::Retry, at(6));
    assert_eq!(queue.take_tally(), Tally { adds: 2, retries: 1 });
    assert_eq!(queue.start(at(6)).map(|run| run.waited.as_millis()), Some(4));
    queue.finish("b", Outcome::Done, at(7));
    assert_eq!((queue.depth(), queue.take_tally()), (0, Tally::default()));
    assert_eq!(queue.start(at(60_000)).map(|run| run.key), Some("a"));
    assert_eq!(queue.take_tally(), Tally { adds: 1, retries: 0 });
}

#[test]
fn a_key_that_is_pending_for_long_is_named_once() {
    let base = Instant::now();
    let at = |secs| base + Duration::from_secs(secs);
    let mut queue = Queue::new(1, BACKOFF);
    assert_eq!(queue.look_at(), None);
    for (key, secs) in [("a", 0), ("b", 1), ("c", 200)] {
        queue.wake(key, at(secs));
    }
    assert_eq!(queue.look_at(), Some(at(300)));
    assert_eq!(queue.start(at(200)).map(|run| run.key), Some("a"));
    queue.finish("a", Outcome::Retry, at(201));
    queue.note_error(&"a", Some("refused".into()));
    assert!(queue.long_pending(at(299)).is_empty());
    let named = |queue: &mut Queue<&'static str>, secs| {
        let found = queue.long_pending(at(secs)).into_iter();
        found.map(|it| (it.key, it.age.as_secs(), it.failures, it.error)).collect::<Vec<_>>()
    };
    assert_eq!(named(&mut queue, 300), [("a", 300, 1, Some("refused".into()))]);
    // Two searches are at least ten seconds apart.
    assert_eq!(queue.look_at(), Some(at(310)));
    assert_eq!(named(&mut queue, 310), [("b", 309, 0, None)]);
    assert_eq!(queue.look_at(), Some(at(500)));
    queue.forget(&"c");
    assert_eq!(named(&mut queue, 500), []);
    assert_eq!(queue.look_at(), None, "all that are pending were named");
    // A renewed key has a new age.
    queue.renew("a", at(600));
    assert_eq!(queue.look_at(), Some(at(900)));
    for key in ["a", "b"] {
        queue.forget(&key);
    }
    assert_eq!(queue.look_at(), None, "nothing is pending");
}
