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
//! Each server sees the request as those before it have changed it. During a call each changed
//! field has an owner, so that a conflict between two servers is detected. All servers share a
//! budget, a part of the caller's timeout, and each gets a slice of it. So the runtime has its
//! time, and Ignore holds, whatever servers do.
//!
//! - `context`: the facts that accompany a question, and the outcome for servers that are asked
//!   after the call.
//! - `budget`: the time limits of servers.
//! - `breaker`: leaves out servers that hang; no I/O.
//! - `connection`: the connection to one socket.
//! - `server_conn`: connections to the servers in force.
//! - `peer`: whether the process behind a socket may be asked.
//! - `states`: the state of each server, for metrics.
//! - `ledger`: which server changed which field; no I/O.
//! - `rehearsal`: servers whose answers are compared and not applied.
//! - `hook_run`: one hook point of a call, asked server by server, with the policy of each.
//! - `failure`: the failures of a server, for callers, logs and metrics.
//! - `minutes`: the record of a hook run for `wharf proxy explain`.

mod breaker;
mod budget;
mod connection;
mod context;
mod failure;
mod hook_run;
mod ledger;
mod minutes;
mod peer;
mod rehearsal;
mod server_conn;
mod states;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tonic::Status;

pub use self::ledger::Conflict;
use self::{
    budget::Budget,
    failure::Failure,
    hook_run::{HookRun, ServerCall},
    ledger::Ledger,
    minutes::Minutes,
    rehearsal::Rehearsals,
    server_conn::ServerConns,
};
pub(crate) use self::{
    budget::HookTime,
    context::{CallContext, Outcome, Trace},
    ledger::Dispute,
    rehearsal::Compared,
    states::ServerStates,
};
use crate::{
    HookPoint, audit,
    config::{Answers, Barred, FailurePolicy, Server, Servers},
    edit::Edit,
    explain::History,
    hook_metrics::HookMetrics,
    subject::{Reading, Subject},
};

/// Options of a [`Chain`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainOptions {
    /// The most time that all servers of a call may take together. 2 s unless set; never more than
    /// a fifth of what the caller gives the call.
    pub(crate) budget: Duration,
    /// The rule for servers that change the same field.
    pub(crate) conflict: Conflict,
    /// The rule for numbers that the protocol cannot tell from unset ones.
    pub(crate) reading: Reading,
}

impl Default for ChainOptions {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(2),
            conflict: Conflict::default(),
            reading: Reading::default(),
        }
    }
}

/// The hook servers in force, in their order.
#[derive(Debug)]
pub(crate) struct Chain {
    conns: Arc<ServerConns>,
    options: ChainOptions,
    metrics: HookMetrics,
    rehearsals: Rehearsals,
    /// The records of hook calls.
    pub(crate) history: History,
    _follower: AbortOnDropHandle<()>,
}

/// The result of asking servers.
pub(crate) struct Asked<S: Subject> {
    /// The request as it was changed.
    pub(crate) request: S::Request,
    /// The net changes.
    pub(crate) edits: Vec<Edit>,
    /// Whether any server answered.
    pub(crate) answered: bool,
    /// Whether an answer of kind `koordinator` had content, also if it changed nothing.
    pub(crate) has_content: bool,
    /// The servers whose changes count.
    pub(crate) by: Vec<Arc<Server>>,
}

/// The result of notifying servers.
#[derive(Debug)]
pub(crate) struct Notified {
    /// The servers that were notified, by name.
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
    ) -> Self {
        let conns = Arc::new(ServerConns::new(servers));
        conns.current();
        let follower = TaskTracker::new().spawn(conns.clone().follow());
        let (rehearsals, history) = (Rehearsals::default(), History::default());
        let _follower = AbortOnDropHandle::new(follower);
        Self { conns, options, metrics, rehearsals, history, _follower }
    }

    /// Whether any server is asked at `point`, or would have to be.
    pub(crate) fn wants(&self, point: HookPoint) -> bool {
        self.conns.current().iter().any(|conn| conn.server.hooks.contains_key(&point))
            || self.conns.barred(point).is_some()
    }

    /// Waits until a server is asked at `point`, or, for `wanted` false, until none is.
    pub(crate) async fn until(&self, point: HookPoint, wanted: bool) {
        let mut servers = self.conns.servers();
        while self.wants(point) != wanted {
            if servers.changed().await.is_err() {
                // Servers do not change any more: the proxy ends.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether a server that is asked at `point` is told details of containers.
    pub(crate) fn tells_details(&self, point: HookPoint) -> bool {
        let is_notified = |server: &Server| server.details && server.hooks.contains_key(&point);
        self.conns.current().iter().any(|conn| is_notified(&conn.server))
    }

    /// Whether a server that is asked at `point` has to have been asked.
    pub(crate) fn insists(&self, point: HookPoint) -> bool {
        let must = |policy: Option<&FailurePolicy>| policy == Some(&FailurePolicy::Fail);
        self.conns.current().iter().any(|conn| must(conn.server.hooks.get(&point)))
            || self.conns.barred(point).is_some()
    }

    /// The states of the servers in force, for metrics.
    pub(crate) fn states(&self) -> ServerStates {
        ServerStates(self.conns.clone())
    }

    /// The last failure of each server that has not answered since, by the name of its file.
    pub(crate) fn failures(&self) -> BTreeMap<String, String> {
        let conns = self.conns.current();
        let failing = conns.iter().filter_map(|conn| {
            let failure = conn.refusal().or(conn.left_out()).or_else(|| conn.failure().clone())?;
            Some((conn.server.name.clone(), failure))
        });
        failing.collect()
    }

    /// Refuses a call while a server is missing that has to be asked at `point`.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE, with the server and the reason.
    pub(crate) fn refuse_without(&self, point: HookPoint, pod: &str) -> Result<(), Status> {
        let Some(Barred { name, why, .. }) = self.conns.barred(point) else { return Ok(()) };
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
    /// The failure of a server whose policy is to fail. Servers after it are not asked. UNAVAILABLE
    /// while a server is missing that has to be asked.
    pub(crate) async fn ask<S: Subject>(
        &self,
        point: HookPoint,
        context: &CallContext,
        mut request: S::Request,
    ) -> Result<Asked<S>, Status> {
        if let Err(status) = self.refuse_without(point, &context.pod) {
            minutes::of_missing(&self.history, point, context, self.conns.barred(point));
            return Err(status);
        }
        let run = self.run(point, context);
        let metadata = context.trace.metadata();
        let reading = self.options.reading;
        let mut rehearsals = self.rehearsals.of::<S>(&run);
        let mut minutes = Minutes::open(&self.history, &run, S::fields(&request));
        let mut ledger = Ledger::default();
        let mut changes = Vec::new();
        let (mut answered, mut has_content) = (false, false);
        let mut calls = run.calls();
        while let Some(call) = calls.next() {
            rehearsals.reach(call.conn, &request);
            minutes.ask(&call);
            let called = call.call::<S>(&request, &metadata).await;
            let mut heard = minutes.hear(&call);
            let admitted = called.and_then(|answer| {
                let edits = call.conn.edits::<S>(point, &request, &answer, reading)?;
                heard.answered(&edits, &ledger, self.options.conflict);
                let is_whole = call.conn.server.answers == Answers::Koordinator;
                if is_whole {
                    heard.ignored(&S::ignored(point, &request, &answer, reading));
                }
                let speaks = is_whole && answer != S::Response::default();
                Ok((speaks, self.admit(&call, &ledger, edits)?))
            });
            heard.conclude(&admitted);
            let (speaks, edits) = match call.conclude(admitted) {
                Ok(Some(admitted)) => admitted,
                Ok(None) => continue,
                Err(status) => {
                    minutes.refuse(calls.map(|call| &*call.conn.server));
                    return Err(status);
                }
            };
            answered = true;
            has_content |= speaks;
            if !edits.is_empty() {
                S::apply(&mut request, &edits);
                ledger.enter(&call.conn.server, &edits);
                changes.push((call.conn, edits));
            }
        }
        // Audited last, because a later failure undoes the changes.
        let mut by = Vec::with_capacity(changes.len());
        for (conn, edits) in changes {
            audit::changed(&conn.server.name, point, context, &edits);
            edits.iter().for_each(|edit| self.metrics.changed(&conn.server.name, &edit.field));
            by.push(conn.server.clone());
        }
        let edits = ledger.net();
        let record = minutes.finish(run.has_dry_runs());
        rehearsals.begin(&request, &edits, &metadata, reading, (&self.history, record));
        Ok(Asked { request, edits, answered, has_content, by })
    }

    /// The time that a call may still spend on lookups for its servers, within the same budget; its
    /// caller waits until it `ends`.
    pub(crate) fn patience(&self, ends: Option<Instant>, time: &HookTime) -> Duration {
        budget::total(self.options.budget, ends, time)
    }

    /// Notifies the servers of `point` of the outcome of a call, except those in `know`. Ignores
    /// their answers.
    pub(crate) async fn notify<S: Subject>(
        &self,
        point: HookPoint,
        context: &CallContext,
        request: S::Request,
        outcome: &Outcome,
        know: &BTreeSet<String>,
    ) -> Notified {
        let run = HookRun { know, ..self.run(point, context) };
        let mut metadata = context.trace.metadata();
        outcome.add_to(&mut metadata);
        let (reading, history) = (self.options.reading, &self.history);
        let rehearsals = self.rehearsals.of::<S>(&run);
        rehearsals.begin(&request, &[], &metadata, reading, (history, None));
        let mut minutes = Minutes::open(history, &run, Vec::new());
        let mut notified = Notified { servers: know.clone(), all: Ok(()) };
        for call in run.calls() {
            minutes.ask(&call);
            let called = call.call::<S>(&request, &metadata).await.map(drop);
            minutes.hear(&call).conclude(&called);
            match call.conclude(called) {
                Ok(None) => {}
                Ok(Some(())) => drop(notified.servers.insert(call.conn.server.name.clone())),
                Err(status) => {
                    minutes.fail();
                    notified.all = notified.all.and(Err(status));
                }
            }
        }
        minutes.finish(false);
        notified
    }

    fn run<'a>(&'a self, point: HookPoint, context: &'a CallContext) -> HookRun<'a> {
        static NOBODY: BTreeSet<String> = BTreeSet::new();
        let most = self.options.budget;
        let budget = Budget::start(most, context.ends, &context.time);
        let (conns, metrics) = (self.conns.current(), &self.metrics);
        HookRun { conns, metrics, point, context, budget, most, know: &NOBODY }
    }

    /// The edits of a server that count, after conflicts.
    fn admit(
        &self,
        call: &ServerCall<'_>,
        ledger: &Ledger,
        edits: Vec<Edit>,
    ) -> Result<Vec<Edit>, Failure> {
        let disputes = ledger.disputes(&edits);
        if disputes.is_empty() {
            return Ok(edits);
        }
        call.contest(&disputes, self.options.conflict);
        match self.options.conflict {
            Conflict::Refuse => Err(Failure::Conflict(disputes)),
            Conflict::First => Ok(ledger.without_disputed(edits)),
            Conflict::Last => Ok(edits),
        }
    }
}
