//! Waits until all expected objects exist, and returns how long that took.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::{sync::Notify, task::JoinSet};

use super::api::{Api, Happening};

/// Without an event for this long, no more events are expected.
const QUIET: Duration = Duration::from_secs(4);

/// The number of different objects that must satisfy the condition.
pub(super) struct Goal {
    pub(super) path: String,
    pub(super) count: usize,
    pub(super) is_reached: Reached,
    /// Whether fewer suffice: Go drops events when too many wait.
    pub(super) may_lack: bool,
}

pub(super) type Reached = Box<dyn Fn(Happening, &Value) -> bool + Send>;

/// The running watches.
pub(super) struct Observation {
    seen: Arc<Seen>,
    watches: JoinSet<Result<Infallible>>,
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// From the first change of any kind to the last awaited one.
    pub(super) took: Duration,
    /// The same without goals that may be incomplete.
    pub(super) without_events: Duration,
    /// Objects that never appeared.
    pub(super) lacking: usize,
}

struct Seen {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    first: Option<Instant>,
    /// When each goal last made progress.
    last: Vec<Option<Instant>>,
    wanted: Vec<(usize, bool)>,
    reached: Vec<HashSet<String>>,
}

impl Observation {
    /// Begins to watch. All changes from now on are attributed to the measured program.
    pub(super) async fn start(api: &Api, goals: Vec<Goal>) -> Result<Self> {
        let seen = Arc::new(Seen {
            state: Mutex::new(State {
                first: None,
                last: goals.iter().map(|_| None).collect(),
                wanted: goals.iter().map(|goal| (goal.count, goal.may_lack)).collect(),
                reached: goals.iter().map(|_| HashSet::new()).collect(),
            }),
            changed: Notify::new(),
        });
        let mut watches = JoinSet::new();
        for (index, goal) in goals.into_iter().enumerate() {
            let mut happenings = api.watch(&goal.path).await?;
            let seen = seen.clone();
            watches.spawn(async move {
                loop {
                    let (happening, object) = happenings.next().await?;
                    let is_reached = (goal.is_reached)(happening, &object);
                    seen.note(index, is_reached.then(|| name(&object)));
                }
            });
        }
        Ok(Self { seen, watches })
    }

    /// Waits until all goals are reached, or all mandatory ones and no more events come.
    pub(super) async fn finish(mut self, deadline: Duration) -> Result<Outcome> {
        let end = tokio::time::Instant::now() + deadline;
        loop {
            if let Some(outcome) = self.seen.outcome() {
                return Ok(outcome);
            }
            let wake = end.min(tokio::time::Instant::now() + QUIET / 4);
            tokio::select! {
                () = self.seen.changed.notified() => {}
                () = tokio::time::sleep_until(wake) => {}
                Some(ended) = self.watches.join_next() => match ended.context("a watch")?? {},
            }
            if tokio::time::Instant::now() >= end {
                bail!("after {deadline:?} there are {} objects as wanted", self.seen.counts());
            }
        }
    }
}

impl Seen {
    fn note(&self, goal: usize, reached: Option<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        state.first.get_or_insert(now);
        if let Some(name) = reached
            && state.reached[goal].insert(name)
        {
            state.last[goal] = Some(now);
            drop(state);
            self.changed.notify_one();
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lacking = 0;
        for ((wanted, may_lack), reached) in state.wanted.iter().zip(&state.reached) {
            let missing = wanted.saturating_sub(reached.len());
            if missing > 0 && !may_lack {
                return None;
            }
            lacking += missing;
        }
        let first = state.first?;
        let last = state.last.iter().flatten().max()?;
        let goals = state.last.iter().zip(&state.wanted);
        let musts = goals.filter(|(_, (_, may_lack))| !may_lack).filter_map(|(last, _)| *last);
        let is_over = lacking == 0 || last.elapsed() > QUIET;
        is_over.then(|| Outcome {
            took: last.duration_since(first),
            without_events: musts.max().unwrap_or(first).duration_since(first),
            lacking,
        })
    }

    fn counts(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let goals = state.wanted.iter().zip(&state.reached);
        let counts = goals.map(|((wanted, _), reached)| format!("{} of {wanted}", reached.len()));
        counts.collect::<Vec<_>>().join(", ")
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
