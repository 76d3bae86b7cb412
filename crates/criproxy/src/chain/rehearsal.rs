//! Servers with `dry-run`: asked like others, their answers compared and never applied.
//!
//! Their questions are those that they would get at their place in the order. They are asked once the
//! others have answered, beside the call and not before it: a dry run costs a call nothing.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

use super::about::About;
use super::connection::{Question, Slice};
use super::line::Line;
use super::round::{FAIR, Round};
use crate::edit::Edit;
use crate::explain::{Body, ChangeEffect, History, Record, ServerDecision, changes_of, micros};
use crate::hook_metrics::HookMetrics;
use crate::identity::Identity;
use crate::subject::{Reading, Subject};
use crate::{HookPoint, audit};

/// The most questions under way. Others are left out, and counted.
const MOST: usize = 256;

/// The questions that are under way, ended with their owner.
#[derive(Debug, Default)]
pub(super) struct Rehearsals(Mutex<JoinSet<()>>);

/// Those of one round.
pub(super) struct OfRound<'a, S: Subject> {
    tasks: &'a Rehearsals,
    round: &'a Round<'a>,
    /// Servers by their index, with the requests that they would be asked with.
    asked: Vec<(usize, S::Request)>,
    subject: PhantomData<S>,
}

impl Rehearsals {
    pub(super) fn of<'a, S: Subject>(&'a self, round: &'a Round<'a>) -> OfRound<'a, S> {
        OfRound { tasks: self, round, asked: Vec::new(), subject: PhantomData }
    }
}

impl<S: Subject> OfRound<'_, S> {
    /// Notes the request for servers that come before `next`.
    pub(super) fn reach(&mut self, next: &Line, request: &S::Request) {
        let is_next = |line: &Line| std::ptr::eq(line, next);
        let end = self.round.lines.iter().position(is_next).unwrap_or_default();
        self.note(end, request);
    }

    fn note(&mut self, end: usize, request: &S::Request) {
        let begin = self.asked.last().map_or(0, |(index, _)| index + 1);
        for index in begin..end {
            let server = &self.round.lines[index].server;
            if server.dry_run && server.hooks.contains_key(&self.round.point) {
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
        self.note(self.round.lines.len(), request);
        if self.asked.is_empty() {
            return;
        }
        let applied: Arc<[Edit]> = applied.into();
        let mut tasks = self.tasks.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        for (index, request) in self.asked {
            let Round { lines, metrics, point, about, most, .. } = self.round;
            if tasks.len() >= MOST {
                let server = lines[index].server.name.clone();
                metrics.ended(&server, *point, "skipped");
                let error = Some(format!("{MOST} dry runs are under way"));
                let decision = ServerDecision { server, error, ..of_dry_run("skipped") };
                keep(history, record, *point, about, decision);
                continue;
            }
            let rehearsal = Rehearsal::<S> {
                lines: lines.clone(),
                index,
                metrics: (*metrics).clone(),
                point: *point,
                about: (*about).clone(),
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
    lines: Arc<[Line]>,
    index: usize,
    metrics: HookMetrics,
    point: HookPoint,
    about: About,
    request: S::Request,
    /// What the call changed in the end.
    applied: Arc<[Edit]>,
    history: History,
    /// The record of its round, if there is one.
    record: Option<u64>,
    most: Duration,
    reading: Reading,
}

impl<S: Subject> Rehearsal<S> {
    async fn run(self, metadata: MetadataMap) {
        let line = &self.lines[self.index];
        let server = &line.server;
        let time = server.timeout.unwrap_or(self.most).min(self.most);
        let details = if server.details { &*self.about.details } else { &[] };
        let question =
            Question::new(self.point, &self.about.half, &self.request, details, &metadata);
        let started = Instant::now();
        let answer = line.call::<S>(question, Slice { time, fair: time.min(FAIR) }).await;
        let fields = || S::fields(&self.request);
        let answer = answer.map_err(|it| it.without_secrets(&self.about, &fields()));
        let took = started.elapsed();
        self.metrics.took(&server.name, self.point, took);
        let mut decision = ServerDecision {
            server: server.name.clone(),
            took_us: Some(micros(took)),
            given_us: Some(micros(time)),
            ..of_dry_run("ok")
        };
        match answer
            .and_then(|answer| line.edits::<S>(self.point, &self.request, &answer, self.reading))
        {
            Ok(edits) => {
                self.metrics.ended(&server.name, self.point, "ok");
                if line.recovers() {
                    tracing::info!(server = server.name, "hook server answers again");
                }
                self.compare(&server.name, &edits, &mut decision);
            }
            Err(failure) => {
                self.metrics.ended(&server.name, self.point, failure.outcome());
                self.metrics.rehearsal_failed(&server.name, self.point);
                decision.fail(&failure);
                let (server, hook, error) = (&server.name, self.point.name(), &failure);
                if line.begins_to_fail(error) {
                    tracing::warn!(server, hook, %error, "hook server fails in its dry run");
                } else {
                    tracing::debug!(server, hook, %error, "hook server still fails in its dry run");
                }
            }
        }
        keep(&self.history, self.record, self.point, &self.about, decision);
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
            audit::rehearsed(server, self.point, &self.about, &compared);
        }
    }
}

fn of_dry_run(outcome: &str) -> ServerDecision {
    ServerDecision { dry_run: true, ..ServerDecision::new(outcome) }
}

/// Adds a dry run to the record of its round, or keeps a record of its own.
fn keep(
    history: &History,
    record: Option<u64>,
    point: HookPoint,
    about: &About,
    decision: ServerDecision,
) {
    match record {
        Some(number) => history.rehearsed(number, &decision),
        None => {
            let body = Body { servers: vec![decision], ..Body::default() };
            history.keep(&about.records, Record::new(point, Identity::of(about), &body));
        }
    }
}

/// A change of a dry run beside what was applied to the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Nobody changed this field.
    New,
    /// Somebody changed it to the same.
    Same,
    /// Somebody changed it to something else.
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
