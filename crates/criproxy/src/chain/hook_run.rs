//! One call's way through the servers, and the policy for each.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;
use tonic::metadata::MetadataMap;
use wharf_uds::code_name;

use super::about::About;
use super::budget::Budget;
use super::connection::{Question, Slice};
use super::failure::Failure;
use super::ledger::{Conflict, Dispute};
use super::line::Line;
use crate::config::{FailurePolicy, Server};
use crate::hook_metrics::HookMetrics;
use crate::subject::Subject;
use crate::{HookPoint, audit};

/// A server that has this time and does not answer hangs. With less it may be the caller who is in a
/// hurry.
pub(super) const FAIR: Duration = Duration::from_millis(100);

/// One call's way through the servers that were in force when it began.
pub(super) struct Round<'a> {
    pub(super) lines: Arc<[Line]>,
    pub(super) metrics: &'a HookMetrics,
    pub(super) point: HookPoint,
    pub(super) about: &'a About,
    pub(super) budget: Budget,
    /// The budget of a call in all.
    pub(super) most: Duration,
    /// Servers that need not be told again.
    pub(super) know: &'a BTreeSet<String>,
}

impl Round<'_> {
    /// Whether a server is asked whose answers are compared only.
    pub(super) fn has_dry_runs(&self) -> bool {
        let is_asked = |server: &Server| server.dry_run && server.hooks.contains_key(&self.point);
        self.lines.iter().any(|line| is_asked(&line.server))
    }

    pub(super) fn turns(&self) -> impl Iterator<Item = Turn<'_>> {
        let policy = |line: &Line| {
            let policy = line.server.hooks.get(&self.point).copied();
            policy.filter(|_| !self.know.contains(&line.server.name) && !line.server.dry_run)
        };
        let here = self.lines.iter().filter(|line| policy(line).is_some()).count();
        let wants =
            |line: &Line, point| !line.server.dry_run && line.server.hooks.contains_key(point);
        let later = |point| self.lines.iter().filter(move |line| wants(line, point));
        let mut to_come = here + self.about.later.iter().flat_map(later).count();
        self.lines.iter().filter_map(move |line| {
            let (policy, timing) = (policy(line)?, OnceLock::new());
            let turn = Turn { round: self, line, policy, to_come, timing };
            to_come -= 1;
            Some(turn)
        })
    }
}

/// The time of a question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) given: Duration,
    pub(super) took: Duration,
}

/// One server of a round.
pub(super) struct Turn<'a> {
    round: &'a Round<'a>,
    pub(super) line: &'a Line,
    pub(super) policy: FailurePolicy,
    /// The time of the question, once it was asked.
    pub(super) timing: OnceLock<Timing>,
    /// The servers that still share the budget, this one included, each once for each point of the call.
    to_come: usize,
}

impl Turn<'_> {
    pub(super) async fn call<S: Subject>(
        &self,
        message: &S::Request,
        metadata: &MetadataMap,
    ) -> Result<S::Response, Failure> {
        let Turn { round, line, .. } = self;
        let timeout = line.server.timeout;
        let time = round.budget.slice(timeout, self.to_come);
        let shares = u32::try_from(self.to_come).unwrap_or(u32::MAX).max(1);
        // What others took of the time by then is not for this one to answer for.
        let fair = timeout.unwrap_or(round.most / shares).min(FAIR) * 9 / 10;
        let about = round.about;
        let details = if line.server.details { &*about.details } else { &[] };
        let question = Question::new(round.point, &about.half, message, details, metadata);
        let started = Instant::now();
        let answer = line.call::<S>(question, Slice { time, fair }).await;
        let answer = answer.map_err(|it| it.without_secrets(about, &S::fields(message)));
        if !matches!(answer, Err(Failure::LeftOut(_))) {
            let took = started.elapsed();
            // A turn asks once.
            let _ = self.timing.set(Timing { given: time, took });
            round.metrics.took(&line.server.name, round.point, took);
        }
        answer
    }

    /// Counts what came of it, and applies the policy to a failure: an error, or nothing.
    pub(super) fn conclude<T>(&self, result: Result<T, Failure>) -> Result<Option<T>, Status> {
        let Turn { round: Round { metrics, point, .. }, line, policy, .. } = self;
        let server = &line.server;
        let failure = match result {
            Ok(answer) => {
                metrics.ended(&server.name, *point, "ok");
                if line.recovers() {
                    tracing::info!(server = server.name, "hook server answers again");
                }
                return Ok(Some(answer));
            }
            Err(failure) => failure,
        };
        metrics.ended(&server.name, *point, failure.outcome());
        metrics.applied(&server.name, *point, *policy);
        self.log(&failure);
        match policy {
            FailurePolicy::Fail => Err(failure.status(server, *point)),
            FailurePolicy::Ignore => Ok(None),
        }
    }

    /// A server that is down fails every call: told once in full, and counted each time.
    fn log(&self, failure: &Failure) {
        let Turn { round: Round { point, about, .. }, line, policy, .. } = self;
        let (server, hook, error) = (&line.server.name, point.name(), failure);
        if !line.begins_to_fail(failure) {
            tracing::debug!(server, hook, pod = about.pod, %error, "hook server still fails");
            return;
        }
        tracing::warn!(
            server,
            endpoint = %line.server.endpoint.display(),
            hook,
            pod = about.pod,
            container = about.container,
            code = code_name(error.code()),
            %error,
            policy = policy.name(),
            "hook server fails"
        );
    }

    /// Writes down what others have changed before.
    pub(super) fn contest(&self, disputes: &[Dispute], conflict: Conflict) {
        let Turn { round: Round { metrics, point, about, .. }, line, .. } = self;
        let server = &line.server.name;
        for dispute in disputes {
            metrics.contested(server, &dispute.owner.name, conflict.name());
        }
        audit::contested(server, *point, about, conflict.name(), disputes);
    }
}
