//! A record of one hook point of a call.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::shown::{Shown, shown_field};
use crate::{
    edit::{Edit, Field, Value},
    identity::Identity,
};

/// As many changes of one answer are kept.
const CHANGES: usize = 64;
/// As many bytes of the changes of one answer are kept.
const CHANGE_BYTES: usize = 8 << 10;
/// As many fields of a question are kept.
const FIELDS: usize = 48;

/// The records of a pod or container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The pod or container.
    pub subject: String,
    /// The time from which on all records are kept.
    pub since: String,
    /// The records, oldest first.
    pub decisions: Vec<Decision>,
}

/// One hook point of one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When it began.
    pub time: String,
    /// The hook point.
    pub hook: String,
    /// The pod or container.
    #[serde(flatten)]
    pub identity: Identity,
    /// How the call ended; absent if it has not, or no call led to the hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallEnd>,
    /// The servers' part.
    #[serde(flatten)]
    pub body: Body,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallEnd {
    /// The method.
    pub method: String,
    /// The gRPC code that the caller got.
    pub code: String,
    /// Microseconds from its message to its answer.
    pub took_us: u64,
}

/// The servers' part of a record, which is kept encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Body {
    /// What it came to.
    pub verdict: Verdict,
    /// Microseconds that all servers took.
    pub took_us: u64,
    /// Why servers were not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the first server was asked with, by field. The others saw the changes of those before
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub request: BTreeMap<String, Shown>,
    /// Fields of the request that are not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_fields: usize,
    /// The servers in the order in which they were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerDecision>,
}

/// What hooks mean for their call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The call went on.
    #[default]
    WentOn,
    /// The call was refused, or failed after the fact.
    Refused,
    /// The caller left while servers were asked.
    Abandoned,
}

/// One server at a hook point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerDecision {
    /// The name of its file.
    pub server: String,
    /// `ok`, or what went wrong, as metrics name it.
    pub outcome: String,
    /// Whether its answer is compared only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
    /// Microseconds that it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// Microseconds that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_us: Option<u64>,
    /// The failure policy that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What its answer would change of what it was asked with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Changes that are not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_changes: usize,
}

impl ServerDecision {
    /// One with this outcome.
    pub(crate) fn new(outcome: &str) -> Self {
        Self { outcome: outcome.to_owned(), ..Self::default() }
    }
}

/// A field that an answer changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The field, as the runtime interface names it.
    pub field: String,
    /// The value in the question.
    pub from: Shown,
    /// The value in the answer.
    pub to: Shown,
    /// What became of it.
    pub effect: ChangeEffect,
    /// Why it was not applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeEffect {
    /// It is in the request that the runtime got.
    Applied,
    /// It is not in this request: hooks that follow see it, and the runtime gets it with the next
    /// full update if it can be updated.
    Remembered,
    /// Another server changed the field later.
    Overridden,
    /// The proxy refused it.
    Refused,
    /// The value is out of range, and counts as unset.
    Ignored,
    /// It was applied, and the call was refused later.
    Undone,
    /// It is that of a dry run.
    DryRun,
}

/// What may be shown of edits that have this effect, and how many are left out.
pub(crate) fn changes_of<'a>(
    edits: impl IntoIterator<Item = &'a Edit>,
    effect: ChangeEffect,
) -> (Vec<Change>, usize) {
    let (mut changes, mut bytes, mut more) = (Vec::new(), 0, 0);
    for edit in edits {
        let change = Change::new(edit, effect);
        bytes += change.field.len() + change.from.len() + change.to.len();
        if changes.len() < CHANGES && bytes <= CHANGE_BYTES {
            changes.push(change);
        } else {
            more += 1;
        }
    }
    (changes, more)
}

impl Change {
    pub(crate) fn new(Edit { field, from, to }: &Edit, effect: ChangeEffect) -> Self {
        let (name, from) = shown_field(field, from);
        Self { field: name, from, to: Shown::of(field, to), effect, why: None }
    }
}

impl Body {
    /// Notes what a question holds.
    pub(crate) fn asked(&mut self, fields: impl IntoIterator<Item = (Field, Value)>) {
        for (field, value) in fields {
            if self.request.len() < FIELDS {
                let (name, value) = shown_field(&field, &value);
                self.request.insert(name, value);
            } else {
                self.more_fields += 1;
            }
        }
    }
}

/// Whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(is: &bool) -> bool {
    !*is
}
