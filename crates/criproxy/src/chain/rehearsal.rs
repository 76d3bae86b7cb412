//! Servers with `dry-run`: they are asked, and their answers are compared but never applied.
//!
//! They get the questions of their place in the order, after the other servers have answered and
//! while the call goes on. So a dry run never delays a call.

use std::{
    marker::PhantomData,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};
use tonic::metadata::MetadataMap;

use super::{
    connection::{Question, Slice},
    context::CallContext,
    hook_run::{FAIR, HookRun},
    server_conn::ServerConn,
};
use crate::{
    HookPoint, audit,
    edit::Edit,
    explain::{Body, ChangeEffect, History, Record, ServerDecision, changes_of, micros},
    hook_metrics::HookMetrics,
    identity::Identity,
    subject::{Reading, Subject},
};

/// The most questions under way. Further ones are dropped and counted.
const MOST: usize = 256;

/// The questions that are under way, ended with their owner.
#[derive(Debug, Default)]
pub(super) struct Rehearsals(Mutex<JoinSet<()>>);

/// The dry runs of one hook run.
pub(super) struct OfRun<'a, S: Subject> {
    tasks: &'a Rehearsals,
    run: &'a HookRun<'a>,
    /// Servers by their index, with the requests that they would be asked with.
    asked: Vec<(usize, S::Request)>,
    subject: PhantomData<S>,
}

impl Rehearsals {
    pub(super) fn of<'a, S: Subject>(&'a self, run: &'a HookRun<'a>) -> OfRun<'a, S> {
        OfRun { tasks: self, run, asked: Vec::new(), subject: PhantomData }
    }
}

impl<S: Subject> OfRun<'_, S> {
    /// Records the request for servers before `next`.
    pub(super) fn reach(&mut self, next: &ServerConn, request: &S::Request) {
        let is_next = |conn: &ServerConn| std::ptr::eq(conn, next);
        let end = self.run.conns.iter().position(is_next).unwrap_or_default();
        self.note(end, request);
    }

    fn note(&mut self, end: usize, request: &S::Request) {
        let begin = self.asked.last().map_or(0, |(index, _)| index + 1);
        for index in begin..end {
            let server = &self.run.conns[index].server;
            if server.dry_run && server.hooks.contains_key(&self.run.point) {
                self.asked.push((index, request.clone()));
            }
        }
    }

    /// Asks all of them, now that the others have answered.
    pub(super) fn begin(
        mut self,
        request: &S::Request,
        applied: &[Edit],
        metadata: &MetadataMap,
        reading: Reading,
        (history, record): (&History, Option<u64>),
    ) {
        self.note(self.run.conns.len(), request);
        if self.asked.is_empty() {
            return;
        }
        let applied: Arc<[Edit]> = applied.into();
        let mut tasks = self.tasks.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        for (index, request) in self.asked {
            let HookRun { conns, metrics, point, context, most, .. } = self.run;
            if tasks.len() >= MOST {
                let server = conns[index].server.name.clone();
                metrics.ended(&server, *point, "skipped");
                let error = Some(format!("{MOST} dry runs are under way"));
                let decision = ServerDecision { server, error, ..of_dry_run("skipped") };
                keep(history, record, *point, context, decision);
                continue;
            }
            let rehearsal = Rehearsal::<S> {
                conns: conns.clone(),
                index,
                metrics: (*metrics).clone(),
                point: *point,
                context: (*context).clone(),
                request,
                applied: applied.clone(),
                history: history.clone(),
                record,
                most: *most,
                reading,
            };
            tasks.spawn(rehearsal.run(metadata.clone()));
        }
    }
}

/// One question to one server.
struct Rehearsal<S: Subject> {
    conns: Arc<[ServerConn]>,
    index: usize,
    metrics: HookMetrics,
    point: HookPoint,
    context: CallContext,
    request: S::Request,
    /// The net changes of the call.
    applied: Arc<[Edit]>,
    history: History,
    /// The record of its hook run, if there is one.
    record: Option<u64>,
    most: Duration,
    reading: Reading,
}

impl<S: Subject> Rehearsal<S> {
    async fn run(self, metadata: MetadataMap) {
        let conn = &self.conns[self.index];
        let server = &conn.server;
        let time = server.timeout.unwrap_or(self.most).min(self.most);
        let details = if server.details { &*self.context.details } else { &[] };
        let question =
            Question::new(self.point, &self.context.encoded_pod, &self.request, details, &metadata);
        let started = Instant::now();
        let answer = conn.call::<S>(question, Slice { time, fair: time.min(FAIR) }).await;
        let fields = || S::fields(&self.request);
        let answer = answer.map_err(|it| it.without_secrets(&self.context, &fields()));
        let took = started.elapsed();
        self.metrics.took(&server.name, self.point, took);
        let mut decision = ServerDecision {
            server: server.name.clone(),
            took_us: Some(micros(took)),
            given_us: Some(micros(time)),
            ..of_dry_run("ok")
        };
        match answer
            .and_then(|answer| conn.edits::<S>(self.point, &self.request, &answer, self.reading))
        {
            Ok(edits) => {
                self.metrics.ended(&server.name, self.point, "ok");
                if conn.recovers() {
                    tracing::info!(server = server.name, "hook server answers again");
                }
                self.compare(&server.name, &edits, &mut decision);
            }
            Err(failure) => {
                self.metrics.ended(&server.name, self.point, failure.outcome());
                self.metrics.rehearsal_failed(&server.name, self.point);
                decision.fail(&failure);
                let (server, hook, error) = (&server.name, self.point.name(), &failure);
                if conn.begins_to_fail(error) {
                    tracing::warn!(server, hook, %error, "hook server failed in its dry run");
                } else {
                    tracing::debug!(server, hook, %error, "hook server still fails in its dry run");
                }
            }
        }
        keep(&self.history, self.record, self.point, &self.context, decision);
    }

    fn compare(&self, server: &str, edits: &[Edit], decision: &mut ServerDecision) {
        let compared: Vec<_> = edits
            .iter()
            .map(|edit| {
                let applied = self.applied.iter().find(|applied| applied.field == edit.field);
                let verdict = match applied {
                    None => Compared::New,
                    Some(applied) if applied.to == edit.to => Compared::Same,
                    Some(_) => Compared::Different,
                };
                self.metrics.rehearsed(server, &edit.field, verdict.name());
                (edit, verdict)
            })
            .collect();
        (decision.changes, decision.more_changes) = changes_of(edits, ChangeEffect::DryRun);
        for (change, (_, verdict)) in decision.changes.iter_mut().zip(&compared) {
            change.why = Some(verdict.reason().to_owned());
        }
        if !compared.is_empty() {
            audit::rehearsed(server, self.point, &self.context, &compared);
        }
    }
}

fn of_dry_run(outcome: &str) -> ServerDecision {
    ServerDecision { dry_run: true, ..ServerDecision::new(outcome) }
}

/// Adds a dry run to the record of its hook run, or makes a record of its own.
fn keep(
    history: &History,
    record: Option<u64>,
    point: HookPoint,
    context: &CallContext,
    decision: ServerDecision,
) {
    match record {
        Some(number) => history.rehearsed(number, &decision),
        None => {
            let body = Body { servers: vec![decision], ..Body::default() };
            history.keep(&context.records, Record::new(point, Identity::of(context), &body));
        }
    }
}

/// A change of a dry run, compared with the changes that were applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// No server changed this field.
    New,
    /// A server changed it to the same value.
    Same,
    /// A server changed it to another value.
    Different,
}

impl Compared {
    /// The name in metrics and in the audit.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Same => "same",
            Self::Different => "different",
        }
    }

    /// The same in a sentence.
    fn reason(self) -> &'static str {
        match self {
            Self::New => "new: nobody changed the field",
            Self::Same => "same: it was changed so by others",
            Self::Different => "different: others changed it otherwise",
        }
    }
}
