//! Hook servers, asked one after the other.
//!
//! ```text
//!  request ──> a.json ──answer──> edits ──> ledger: whose field? ──> request' ──> b.json ──> …
//!                │                                  │
//!            no answer in its slice,            conflict: refuse, first or last
//!            an error, garbage                      │
//!                └───────────────> policy: Fail ends the call, Ignore goes on without
//! ```
//!
//! Each server sees the request as those before it have changed it. Fields have owners for the time
//! of a call, so that two servers which fight over one are found out and not merely the last one
//! obeyed. All of them together have a budget, a part of what the caller gives the call, and each
//! has its slice of it: whatever servers do, the runtime has its time, and Ignore ignores.
//!
//! - `about`: what comes with a question, and the outcome for those asked afterwards.
//! - `budget`: how long servers may take.
//! - `breaker`: servers that hang are left out; no I/O.
//! - `connection`: the connection to one socket.
//! - `line`: connections to the servers in force.
//! - `peer`: whether the process behind a socket may be asked.
//! - `states`: the state of each server, for metrics.
//! - `ledger`: who changed what; no I/O.
//! - `rehearsal`: servers whose answers are compared and not applied.
//! - `round`: one call's way through the servers, and the policy for each.
//! - `failure`: what went wrong with one server, in all its words.
//! - `minutes`: what is kept of a round for `wharf proxy explain`.

mod about;
mod breaker;
mod budget;
mod connection;
mod failure;
mod ledger;
mod line;
mod minutes;
mod peer;
mod rehearsal;
mod round;
mod states;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tonic::Status;

pub(crate) use self::about::{About, Outcome, Trace};
use self::budget::Budget;
pub(crate) use self::budget::HookTime;
use self::failure::Failure;
pub use self::ledger::Conflict;
pub(crate) use self::ledger::Dispute;
use self::ledger::Ledger;
use self::line::Lines;
use self::minutes::Minutes;
pub(crate) use self::rehearsal::Compared;
use self::rehearsal::Rehearsals;
use self::round::{Round, Turn};
pub(crate) use self::states::ServerStates;
use crate::config::{Answers, Barred, FailurePolicy, Server, Servers};
use crate::edit::Edit;
use crate::explain::History;
use crate::hook_metrics::HookMetrics;
use crate::subject::{Reading, Subject};
use crate::{HookPoint, audit};

/// How servers are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainOptions {
    /// The most time that all servers of a call may take together. 2 s unless set; never more than a
    /// fifth of what the caller gives the call.
    pub(crate) budget: Duration,
    /// What is done about servers that change the same field.
    pub(crate) conflict: Conflict,
    /// How answers are read.
    pub(crate) reading: Reading,
}

impl Default for ChainOptions {
    fn default() -> ChainOptions {
        ChainOptions {
            budget: Duration::from_secs(2),
            conflict: Conflict::default(),
            reading: Reading::default(),
        }
    }
}

/// The hook servers in force, in their order.
#[derive(Debug)]
pub(crate) struct Chain {
    lines: Arc<Lines>,
    options: ChainOptions,
    metrics: HookMetrics,
    rehearsals: Rehearsals,
    /// What came of hook calls.
    pub(crate) history: History,
    _follower: AbortOnDropHandle<()>,
}

/// What came of asking.
pub(crate) struct Asked<S: Subject> {
    /// The request as it was changed.
    pub(crate) request: S::Request,
    /// What all changes come to.
    pub(crate) edits: Vec<Edit>,
    /// Whether any server answered.
    pub(crate) answered: bool,
    /// Whether an answer that is read as koordinator does said something, be it what was so already.
    pub(crate) said: bool,
    /// Those whose changes count.
    pub(crate) by: Vec<Arc<Server>>,
}

/// What came of telling.
#[derive(Debug)]
pub(crate) struct Told {
    /// The servers that know now, by name.
    pub(crate) servers: BTreeSet<String>,
    /// The first failure of a server whose policy is to fail.
    pub(crate) all: Result<(), Status>,
}

impl<S: Subject> fmt::Debug for Asked<S> {
    /// Without values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<_> = self.edits.iter().map(|edit| &edit.field).collect();
        let mut debug = f.debug_struct("Asked");
        debug.field("changed", &fields).field("answered", &self.answered).finish_non_exhaustive()
    }
}

impl Chain {
    /// Connects to the servers, and to others as they change. Needs to be called inside a tokio
    /// runtime.
    pub(crate) fn new(
        servers: watch::Receiver<Arc<Servers>>,
        options: ChainOptions,
        metrics: HookMetrics,
    ) -> Chain {
        let lines = Arc::new(Lines::new(servers));
        lines.current();
        let follower = TaskTracker::new().spawn(lines.clone().follow());
        let (rehearsals, history) = (Rehearsals::default(), History::default());
        let _follower = AbortOnDropHandle::new(follower);
        Chain { lines, options, metrics, rehearsals, history, _follower }
    }

    /// Whether any server is asked at `point`, or would have to be.
    pub(crate) fn wants(&self, point: HookPoint) -> bool {
        self.lines.current().iter().any(|line| line.server.hooks.contains_key(&point))
            || self.lines.barred(point).is_some()
    }

    /// Waits until a server is asked at `point`, or, for `wanted` false, until none is.
    pub(crate) async fn until(&self, point: HookPoint, wanted: bool) {
        let mut servers = self.lines.servers();
        while self.wants(point) != wanted {
            if servers.changed().await.is_err() {
                // Servers do not change any more: the proxy ends.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether a server that is asked at `point` is told details of containers.
    pub(crate) fn tells_details(&self, point: HookPoint) -> bool {
        let is_told = |server: &Server| server.details && server.hooks.contains_key(&point);
        self.lines.current().iter().any(|line| is_told(&line.server))
    }

    /// Whether a server that is asked at `point` has to have been asked.
    pub(crate) fn insists(&self, point: HookPoint) -> bool {
        let must = |policy: Option<&FailurePolicy>| policy == Some(&FailurePolicy::Fail);
        self.lines.current().iter().any(|line| must(line.server.hooks.get(&point)))
            || self.lines.barred(point).is_some()
    }

    /// The states of the servers in force, for metrics.
    pub(crate) fn states(&self) -> ServerStates {
        ServerStates(self.lines.clone())
    }

    /// The last failure of each server that has not answered since, by the name of its file.
    pub(crate) fn failures(&self) -> BTreeMap<String, String> {
        let lines = self.lines.current();
        let failing = lines.iter().filter_map(|line| {
            let failure = line.refusal().or(line.left_out()).or_else(|| line.failure().clone())?;
            Some((line.server.name.clone(), failure))
        });
        failing.collect()
    }

    /// Refuses a call while a server is missing that has to be asked at `point`.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE, with the server and the reason.
    pub(crate) fn refuse_without(&self, point: HookPoint, pod: &str) -> Result<(), Status> {
        let Some(Barred { name, why, .. }) = self.lines.barred(point) else { return Ok(()) };
        let hook = point.name();
        self.metrics.ended(&name, point, "missing");
        self.metrics.applied(&name, point, FailurePolicy::Fail);
        tracing::debug!(server = name, hook, pod, error = why, "call is refused");
        Err(Status::unavailable(format!("hook server err: {name}, {hook}: {why}")))
    }

    /// Asks the servers of `point` what is to be changed.
    ///
    /// # Errors
    ///
    /// The failure of a server whose policy is to fail. Servers after it are not asked. UNAVAILABLE while a server is missing that has to be asked.
    pub(crate) async fn ask<S: Subject>(
        &self,
        point: HookPoint,
        about: &About,
        mut request: S::Request,
    ) -> Result<Asked<S>, Status> {
        if let Err(status) = self.refuse_without(point, &about.pod) {
            minutes::of_missing(&self.history, point, about, self.lines.barred(point));
            return Err(status);
        }
        let round = self.round(point, about);
        let metadata = about.trace.metadata();
        let reading = self.options.reading;
        let mut rehearsals = self.rehearsals.of::<S>(&round);
        let mut minutes = Minutes::open(&self.history, &round, S::fields(&request));
        let mut ledger = Ledger::default();
        let mut changes = Vec::new();
        let (mut answered, mut said) = (false, false);
        let mut turns = round.turns();
        while let Some(turn) = turns.next() {
            rehearsals.reach(turn.line, &request);
            minutes.ask(&turn);
            let called = turn.call::<S>(&request, &metadata).await;
            let mut heard = minutes.hear(&turn);
            let admitted = called.and_then(|answer| {
                let edits = turn.line.edits::<S>(point, &request, &answer, reading)?;
                heard.answered(&edits, &ledger, self.options.conflict);
                let is_whole = turn.line.server.answers == Answers::Koordinator;
                if is_whole {
                    heard.ignored(&S::ignored(point, &request, &answer, reading));
                }
                let speaks = is_whole && answer != S::Response::default();
                Ok((speaks, self.admit(&turn, &ledger, edits)?))
            });
            heard.conclude(&admitted);
            let (speaks, edits) = match turn.conclude(admitted) {
                Ok(Some(admitted)) => admitted,
                Ok(None) => continue,
                Err(status) => {
                    minutes.refuse(turns.map(|turn| &*turn.line.server));
                    return Err(status);
                }
            };
            answered = true;
            said |= speaks;
            if !edits.is_empty() {
                S::apply(&mut request, &edits);
                ledger.enter(&turn.line.server, &edits);
                changes.push((turn.line, edits));
            }
        }
        // Only now: a change that a later failure undoes was none.
        let mut by = Vec::with_capacity(changes.len());
        for (line, edits) in changes {
            audit::changed(&line.server.name, point, about, &edits);
            edits.iter().for_each(|edit| self.metrics.changed(&line.server.name, &edit.field));
            by.push(line.server.clone());
        }
        let edits = ledger.net();
        let record = minutes.finish(round.has_dry_runs());
        rehearsals.begin(&request, &edits, &metadata, reading, (&self.history, record));
        Ok(Asked { request, edits, answered, said, by })
    }

    /// How long a call may still wait for what its servers need, as it may for themselves; its caller
    /// waits until it `ends`.
    pub(crate) fn patience(&self, ends: Option<Instant>, time: &HookTime) -> Duration {
        budget::total(self.options.budget, ends, time)
    }

    /// Tells the servers of `point` what became of a call, but for those that `know` it. Their answers mean nothing.
    pub(crate) async fn tell<S: Subject>(
        &self,
        point: HookPoint,
        about: &About,
        request: S::Request,
        outcome: &Outcome,
        know: &BTreeSet<String>,
    ) -> Told {
        let round = Round { know, ..self.round(point, about) };
        let mut metadata = about.trace.metadata();
        outcome.add_to(&mut metadata);
        let (reading, history) = (self.options.reading, &self.history);
        let rehearsals = self.rehearsals.of::<S>(&round);
        rehearsals.begin(&request, &[], &metadata, reading, (history, None));
        let mut minutes = Minutes::open(history, &round, Vec::new());
        let mut told = Told { servers: know.clone(), all: Ok(()) };
        for turn in round.turns() {
            minutes.ask(&turn);
            let called = turn.call::<S>(&request, &metadata).await.map(drop);
            minutes.hear(&turn).conclude(&called);
            match turn.conclude(called) {
                Ok(None) => {}
                Ok(Some(())) => drop(told.servers.insert(turn.line.server.name.clone())),
                Err(status) => {
                    minutes.fail();
                    told.all = told.all.and(Err(status));
                }
            }
        }
        minutes.finish(false);
        told
    }

    fn round<'a>(&'a self, point: HookPoint, about: &'a About) -> Round<'a> {
        static NOBODY: BTreeSet<String> = BTreeSet::new();
        let most = self.options.budget;
        let budget = Budget::start(most, about.ends, &about.time);
        let (lines, metrics) = (self.lines.current(), &self.metrics);
        Round { lines, metrics, point, about, budget, most, know: &NOBODY }
    }

    /// Decides which of a server's edits count.
    fn admit(
        &self,
        turn: &Turn<'_>,
        ledger: &Ledger,
        edits: Vec<Edit>,
    ) -> Result<Vec<Edit>, Failure> {
        let disputes = ledger.disputes(&edits);
        if disputes.is_empty() {
            return Ok(edits);
        }
        turn.contest(&disputes, self.options.conflict);
        match self.options.conflict {
            Conflict::Refuse => Err(Failure::Conflict(disputes)),
            Conflict::First => Ok(ledger.without_disputed(edits)),
            Conflict::Last => Ok(edits),
        }
    }
}
