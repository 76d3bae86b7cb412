//! Records of hook calls, for `wharf proxy explain`.
//!
//! One record for each hook point of a call: the servers in their order, the changes that each
//! answered, which of them were applied, and why others were not. The records are in a ring in
//! memory that is bounded by their number and by their bytes. Nothing is allocated for it before it
//! is needed.
//!
//! Secrets never get into the ring. It keeps the key and the length of environment variables and
//! annotations. It keeps errors of hook servers, with such values of the question struck out. Of
//! the runtime it keeps codes, not messages. It keeps resources, cgroup parents and labels in full.
//!
//! - `decision`: a record, in the form in which it is kept and answered.
//! - `shown`: values and errors without secrets; no I/O.
//! - `ring`: the records, within their bounds; no I/O.
//! - `find`: finds the pod or container that a user names; no I/O.

mod decision;
mod find;
mod ring;
mod shown;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use tokio::task::yield_now;
use tonic::Code;

pub use self::{
    decision::{
        Body, CallEnd, Change, ChangeEffect, Decision, Explanation, ServerDecision, Verdict,
    },
    shown::Shown,
};
pub(crate) use self::{
    decision::{changes_of, micros},
    ring::{Made, Record, time},
    shown::{shown_error, strike},
};
use self::{
    find::find,
    ring::{Kept, Ring},
};
use crate::{HookPoint, chain::CallContext, edit::Edit, identity::Identity, intercept::Method};

/// As many records are kept.
const RECORDS: usize = 1000;
/// As many bytes the records may take together.
const BYTES: usize = 1 << 20;

/// As many records are decoded before calls get their turn.
const AT_A_TIME: usize = 16;

/// The records of one proxy. Clones are one.
#[derive(Clone)]
pub(crate) struct History(Arc<Mutex<Ring>>);

/// The records of one call, by number. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfCall(Arc<Mutex<Vec<u64>>>);

impl OfCall {
    fn numbers(&self) -> MutexGuard<'_, Vec<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for History {
    fn default() -> Self {
        Self::bounded(RECORDS, BYTES)
    }
}

impl History {
    fn bounded(records: usize, bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(Ring::new(records, bytes, Timestamp::now()))))
    }

    /// Keeps a record. Its number is for what becomes known later.
    pub(crate) fn keep(&self, call: &OfCall, record: Record) -> u64 {
        let number = self.ring().push(record);
        call.numbers().push(number);
        number
    }

    /// Keeps that no server was asked, and why.
    pub(crate) fn note(&self, point: HookPoint, context: &CallContext, note: impl Into<String>) {
        self.note_of(point, Identity::of(context), &context.records, note.into());
    }

    /// The same, of what is known by nothing but its id.
    pub(crate) fn note_of(
        &self,
        point: HookPoint,
        identity: Identity,
        call: &OfCall,
        note: String,
    ) {
        let body = Body { note: Some(note), ..Body::default() };
        self.keep(call, Record::new(point, identity, &body));
    }

    /// Keeps what servers changed of a pod and is repeated in a container of it.
    pub(crate) fn carried(&self, servers: Option<&str>, context: &CallContext, edits: &[Edit]) {
        let (changes, more) = changes_of(edits, ChangeEffect::Applied);
        let server = ServerDecision {
            server: servers.unwrap_or("unknown, from before the start").to_owned(),
            changes,
            more_changes: more,
            ..ServerDecision::new("carried")
        };
        let note = "changed at PreRunPodSandbox, and repeated in the container".to_owned();
        let body = Body { note: Some(note), servers: vec![server], ..Body::default() };
        let record = Record::new(HookPoint::PreCreateContainer, Identity::of(context), &body);
        self.keep(&context.records, record);
    }

    /// Adds what came of a dry run.
    pub(crate) fn rehearsed(&self, number: u64, decision: &ServerDecision) {
        self.ring().add(number, decision);
    }

    /// Adds how a call ended, and which ids the runtime has given.
    pub(crate) fn ended(
        &self,
        call: &OfCall,
        method: Method,
        code: Code,
        took: Duration,
        made: &Made,
    ) {
        let numbers = std::mem::take(&mut *call.numbers());
        if numbers.is_empty() {
            return;
        }
        let mut ring = self.ring();
        for number in numbers {
            ring.end(number, (method, code, micros(took)), made);
        }
    }

    /// The records of a pod or a container.
    ///
    /// # Errors
    /// A sentence: nothing, or more than one, is called so.
    pub(crate) async fn explain(&self, name: &str) -> Result<Explanation, String> {
        let (subject, since, kept) = self.matching(name)?;
        let mut decisions = Vec::with_capacity(kept.len());
        for (number, kept) in kept.into_iter().enumerate() {
            if number % AT_A_TIME == AT_A_TIME - 1 {
                // Calls are served by the same thread.
                yield_now().await;
            }
            decisions.push(kept.decode());
        }
        Ok(Explanation { subject, since, decisions })
    }

    /// What is called so, since when it could have been known, and its records.
    fn matching(&self, name: &str) -> Result<(String, String, Vec<Kept>), String> {
        let ring = self.ring();
        let sought = find(name, ring.identities()).map_err(|error| ring.explain_miss(&error))?;
        let kept = ring.select(|identity| sought.matches(identity));
        Ok((sought.to_string(), ring.since(), kept))
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("records", &self.ring().len()).finish()
    }
}
