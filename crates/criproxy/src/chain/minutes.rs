//! The record of a hook run for `wharf proxy explain`.

use std::time::Instant;

use jiff::Timestamp;

use super::{
    context::CallContext,
    failure::Failure,
    hook_run::{FAIR, HookRun, ServerCall},
    ledger::{Conflict, Ledger},
};
use crate::{
    HookPoint,
    config::{Barred, FailurePolicy, Server},
    edit::{Edit, Field, Value},
    explain::{
        Body, ChangeEffect, History, Record, ServerDecision, Verdict, changes_of, micros,
        shown_error,
    },
    identity::Identity,
};

/// The record of a hook run under way. Dropping it means that the caller has left.
pub(super) struct Minutes<'a> {
    history: &'a History,
    point: HookPoint,
    context: &'a CallContext,
    at: Timestamp,
    began: Instant,
    body: Body,
    /// The server that is being asked.
    asking: Option<String>,
    is_done: bool,
}

/// One server's part of the record.
pub(super) struct Heard<'m, 'a> {
    minutes: &'m mut Minutes<'a>,
    server: &'m Server,
    policy: FailurePolicy,
    decision: ServerDecision,
}

impl<'a> Minutes<'a> {
    /// Begins the record of a hook run with these fields in its question.
    pub(super) fn open(
        history: &'a History,
        run: &HookRun<'a>,
        fields: Vec<(Field, Value)>,
    ) -> Self {
        let (point, context) = (run.point, run.context);
        let mut body = Body::default();
        body.asked(fields);
        let (at, began) = (Timestamp::now(), Instant::now());
        Self { history, point, context, at, began, body, asking: None, is_done: false }
    }

    /// Records that a server is being asked.
    pub(super) fn ask(&mut self, call: &ServerCall<'_>) {
        self.asking = Some(call.conn.server.name.clone());
    }

    /// Begins the part of the server that was asked.
    pub(super) fn hear<'m>(&'m mut self, call: &'m ServerCall<'_>) -> Heard<'m, 'a> {
        let server = &*call.conn.server;
        let timing = call.timing.get();
        let decision = ServerDecision {
            server: self.asking.take().unwrap_or_else(|| server.name.clone()),
            took_us: timing.map(|timing| micros(timing.took)),
            given_us: timing.map(|timing| micros(timing.given)),
            ..ServerDecision::default()
        };
        Heard { minutes: self, server, policy: call.policy, decision }
    }

    /// The call is refused for the last server's failure. The `others` are not asked.
    pub(super) fn refuse<'s>(mut self, others: impl Iterator<Item = &'s Server>) {
        let reason = "the call was refused";
        for change in self.body.servers.iter_mut().flat_map(|server| &mut server.changes) {
            if matches!(change.effect, ChangeEffect::Applied | ChangeEffect::Remembered) {
                (change.effect, change.why) = (ChangeEffect::Undone, Some(reason.to_owned()));
            }
        }
        self.body.servers.extend(others.map(|server| ServerDecision {
            server: server.name.clone(),
            error: Some(format!("{reason} before its turn")),
            ..ServerDecision::new("not-asked")
        }));
        self.fail();
        self.keep();
    }

    /// Records that the call fails while the hook run continues.
    pub(super) fn fail(&mut self) {
        self.body.verdict = Verdict::Refused;
    }

    /// Ends the record. Returns its number, for dry runs.
    pub(super) fn finish(mut self, has_dry_runs: bool) -> Option<u64> {
        self.is_done = self.body.servers.is_empty() && !has_dry_runs;
        (!self.is_done).then(|| self.keep())
    }

    fn keep(&mut self) -> u64 {
        self.is_done = true;
        let body = Body { took_us: micros(self.began.elapsed()), ..std::mem::take(&mut self.body) };
        let identity = Identity::of(self.context);
        let record = Record::begun(self.at, self.point, identity, &body);
        self.history.keep(&self.context.records, record)
    }
}

impl Drop for Minutes<'_> {
    fn drop(&mut self) {
        if self.is_done || self.asking.is_none() && self.body.servers.is_empty() {
            return;
        }
        if let Some(server) = self.asking.take() {
            let error = Some("the caller left before it answered".to_owned());
            let decision = ServerDecision { server, error, ..ServerDecision::new("abandoned") };
            self.body.servers.push(decision);
        }
        self.body.verdict = Verdict::Abandoned;
        self.keep();
    }
}

impl Heard<'_, '_> {
    /// Records the changes of an answer, and whether they are applied.
    pub(super) fn answered(&mut self, edits: &[Edit], ledger: &Ledger, conflict: Conflict) {
        let disputes = ledger.disputes(edits);
        let (mut changes, more) = changes_of(edits, ChangeEffect::Applied);
        for (change, edit) in changes.iter_mut().zip(edits) {
            let owner = disputes.iter().find(|dispute| dispute.field == edit.field);
            let owner = owner.map(|dispute| dispute.owner.name.as_str());
            let refusal = match (owner, conflict) {
                (Some(owner), Conflict::Refuse | Conflict::First) => {
                    let way = conflict.name();
                    Some(format!("{owner} changed it before, and --on-conflict is {way}"))
                }
                (None, Conflict::Refuse) if !disputes.is_empty() => {
                    Some("its answer is refused as a whole".to_owned())
                }
                _ => None,
            };
            if let Some(why) = refusal {
                (change.effect, change.why) = (ChangeEffect::Refused, Some(why));
                continue;
            }
            if owner.is_some() {
                self.minutes.overrule(&change.field, &self.server.name);
            }
            if let Some(why) = remembered(self.minutes.point, &edit.field) {
                (change.effect, change.why) = (ChangeEffect::Remembered, Some(why.to_owned()));
            }
        }
        self.decision.changes = changes;
        self.decision.more_changes = more;
    }

    /// Records values that count as unset.
    pub(super) fn ignored(&mut self, edits: &[Edit]) {
        let (mut changes, more) = changes_of(edits, ChangeEffect::Ignored);
        for change in &mut changes {
            change.why = Some("the value is out of range, and counts as unset".to_owned());
        }
        self.decision.changes.append(&mut changes);
        self.decision.more_changes += more;
    }

    /// Records the result.
    pub(super) fn conclude<T>(mut self, result: &Result<T, Failure>) {
        match result {
            Ok(_) => self.decision.outcome = "ok".to_owned(),
            Err(failure) => {
                self.decision.policy = Some(self.policy.name().to_owned());
                self.decision.fail(failure);
                let given = self.decision.given_us.unwrap_or(u64::MAX);
                let is_late = self.decision.outcome == "timeout";
                let is_short = is_late && given < micros(FAIR) && self.server.timeout.is_none();
                if let Some(error) = self.decision.error.as_mut().filter(|_| is_short) {
                    error.push_str(
                        "; servers before it, or the caller's deadline, left it no more time",
                    );
                }
            }
        }
        self.minutes.body.servers.push(self.decision);
    }
}

impl ServerDecision {
    /// Records a failure.
    pub(super) fn fail(&mut self, failure: &Failure) {
        self.outcome = failure.outcome().to_owned();
        self.error = Some(shown_error(&failure.text()));
    }
}

impl Minutes<'_> {
    /// Records that a later server has changed a field.
    fn overrule(&mut self, field: &str, server: &str) {
        for change in self.body.servers.iter_mut().flat_map(|server| &mut server.changes) {
            let counts = matches!(change.effect, ChangeEffect::Applied | ChangeEffect::Remembered);
            if counts && change.field == field {
                change.effect = ChangeEffect::Overridden;
                change.why = Some(format!("{server} changed it later, and --on-conflict is last"));
            }
        }
    }
}

/// The reason why a change does not reach the request of this point, if it does not.
fn remembered(point: HookPoint, field: &Field) -> Option<&'static str> {
    match (point, field) {
        (HookPoint::PreStartContainer, Field::Env(_) | Field::CgroupParent)
        | (HookPoint::PreUpdateContainerResources, Field::Env(_) | Field::CgroupParent) => {
            Some("it cannot be changed of a container that is there: only hooks that follow see it")
        }
        (HookPoint::PreStartContainer, _) => {
            Some("a start carries nothing to the runtime: the next full update does")
        }
        _ => None,
    }
}

/// Records that a call is refused because a required server is missing.
pub(super) fn of_missing(
    history: &History,
    point: HookPoint,
    context: &CallContext,
    barred: Option<Barred>,
) {
    let Some(Barred { name, why, .. }) = barred else { return };
    let server = ServerDecision {
        server: name,
        policy: Some(FailurePolicy::Fail.name().to_owned()),
        error: Some(shown_error(&why)),
        ..ServerDecision::new("missing")
    };
    let body = Body { verdict: Verdict::Refused, servers: vec![server], ..Body::default() };
    history.keep(&context.records, Record::new(point, Identity::of(context), &body));
}
