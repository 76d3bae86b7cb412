//! Runs one hook point of a call: asks the servers in order, under the policy of each.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;
use tonic::{Status, metadata::MetadataMap};
use wharf_uds::code_name;

use super::{
    budget::Budget,
    connection::{Question, Slice},
    context::CallContext,
    failure::Failure,
    ledger::{Conflict, Dispute},
    server_conn::ServerConn,
};
use crate::{
    HookPoint, audit,
    config::{FailurePolicy, Server},
    hook_metrics::HookMetrics,
    subject::Subject,
};

/// A server that does not answer within this time hangs. With less time the caller's deadline may
/// be the cause.
pub(super) const FAIR: Duration = Duration::from_millis(100);

/// One hook point of a call, with the servers that were in force when it began.
pub(super) struct HookRun<'a> {
    pub(super) conns: Arc<[ServerConn]>,
    pub(super) metrics: &'a HookMetrics,
    pub(super) point: HookPoint,
    pub(super) context: &'a CallContext,
    pub(super) budget: Budget,
    /// The whole budget of a call.
    pub(super) most: Duration,
    /// Servers that were notified before.
    pub(super) know: &'a BTreeSet<String>,
}

impl HookRun<'_> {
    /// Whether a server in a dry run is asked.
    pub(super) fn has_dry_runs(&self) -> bool {
        let is_asked = |server: &Server| server.dry_run && server.hooks.contains_key(&self.point);
        self.conns.iter().any(|conn| is_asked(&conn.server))
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = ServerCall<'_>> {
        let policy = |conn: &ServerConn| {
            let policy = conn.server.hooks.get(&self.point).copied();
            policy.filter(|_| !self.know.contains(&conn.server.name) && !conn.server.dry_run)
        };
        let here = self.conns.iter().filter(|conn| policy(conn).is_some()).count();
        let wants = |conn: &ServerConn, point| {
            !conn.server.dry_run && conn.server.hooks.contains_key(point)
        };
        let later = |point| self.conns.iter().filter(move |conn| wants(conn, point));
        let mut to_come = here + self.context.later.iter().flat_map(later).count();
        self.conns.iter().filter_map(move |conn| {
            let (policy, timing) = (policy(conn)?, OnceLock::new());
            let call = ServerCall { run: self, conn, policy, to_come, timing };
            to_come -= 1;
            Some(call)
        })
    }
}

/// The time that a question was given, and took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) given: Duration,
    pub(super) took: Duration,
}

/// The question to one server in a hook run.
pub(super) struct ServerCall<'a> {
    run: &'a HookRun<'a>,
    pub(super) conn: &'a ServerConn,
    pub(super) policy: FailurePolicy,
    /// The time of the question, once it was asked.
    pub(super) timing: OnceLock<Timing>,
    /// The servers that still share the budget, this one included, each once for each point of the
    /// call.
    to_come: usize,
}

impl ServerCall<'_> {
    pub(super) async fn call<S: Subject>(
        &self,
        message: &S::Request,
        metadata: &MetadataMap,
    ) -> Result<S::Response, Failure> {
        let ServerCall { run, conn, .. } = self;
        let timeout = conn.server.timeout;
        let time = run.budget.slice(timeout, self.to_come);
        let shares = u32::try_from(self.to_come).unwrap_or(u32::MAX).max(1);
        // Time that earlier servers used must not count against this one.
        let fair = timeout.unwrap_or(run.most / shares).min(FAIR) * 9 / 10;
        let context = run.context;
        let details = if conn.server.details { &*context.details } else { &[] };
        let question = Question::new(run.point, &context.encoded_pod, message, details, metadata);
        let started = Instant::now();
        let answer = conn.call::<S>(question, Slice { time, fair }).await;
        let answer = answer.map_err(|it| it.without_secrets(context, &S::fields(message)));
        if !matches!(answer, Err(Failure::LeftOut(_))) {
            let took = started.elapsed();
            // Set once, because a server is asked once.
            let _ = self.timing.set(Timing { given: time, took });
            run.metrics.took(&conn.server.name, run.point, took);
        }
        answer
    }

    /// Counts the result, and applies the policy to a failure: an error, or `None`.
    pub(super) fn conclude<T>(&self, result: Result<T, Failure>) -> Result<Option<T>, Status> {
        let ServerCall { run: HookRun { metrics, point, .. }, conn, policy, .. } = self;
        let server = &conn.server;
        let failure = match result {
            Ok(answer) => {
                metrics.ended(&server.name, *point, "ok");
                if conn.recovers() {
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

    /// A server that is down fails every call: warn once, and count each time.
    fn log(&self, failure: &Failure) {
        let ServerCall { run: HookRun { point, context, .. }, conn, policy, .. } = self;
        let (server, hook, error) = (&conn.server.name, point.name(), failure);
        if !conn.begins_to_fail(failure) {
            tracing::debug!(server, hook, pod = context.pod, %error, "hook server still fails");
            return;
        }
        tracing::warn!(
            server,
            endpoint = %conn.server.endpoint.display(),
            hook,
            pod = context.pod,
            container = context.container,
            code = code_name(error.code()),
            %error,
            policy = policy.name(),
            "hook server fails"
        );
    }

    /// Counts and audits fields that other servers have changed before.
    pub(super) fn contest(&self, disputes: &[Dispute], conflict: Conflict) {
        let ServerCall { run: HookRun { metrics, point, context, .. }, conn, .. } = self;
        let server = &conn.server.name;
        for dispute in disputes {
            metrics.contested(server, &dispute.owner.name, conflict.name());
        }
        audit::contested(server, *point, context, conflict.name(), disputes);
    }
}
