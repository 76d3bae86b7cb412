//! Conditions of claims, for both operations.

use jiff::Timestamp;
use serde_json::{Value, json};
use wharf_cluster::{Meta, Patch, PersistentVolumeClaim};

/// Whether a claim has a condition of this type.
pub(super) fn has(claim: &PersistentVolumeClaim, kind: &str) -> bool {
    claim.status.conditions.iter().any(|own| own.kind == kind)
}

/// Removes conditions of these types; others are not changed.
pub(super) fn without<'a>(
    claim: &'a PersistentVolumeClaim,
    kinds: &'a [&str],
) -> impl Iterator<Item = Value> {
    let there = kinds.iter().filter(|kind| has(claim, kind));
    there.map(|kind| json!({ "$patch": "delete", "type": kind }))
}

/// A time in the API's format.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes to a claim if it is still in the state of `of`.
pub(super) fn guarded(of: &Meta, annotations: Option<Value>, status: &Value) -> Patch {
    let guard = json!({ "uid": of.uid, "resourceVersion": of.resource_version });
    patch(guard, annotations, status)
}

/// Writes to a claim in any state. One that was deleted and created again under its name is
/// refused.
pub(super) fn unguarded(of: &Meta, status: &Value) -> Patch {
    patch(json!({ "uid": of.uid }), None, status)
}

fn patch(mut metadata: Value, annotations: Option<Value>, status: &Value) -> Patch {
    if let Some(annotations) = annotations {
        metadata["annotations"] = annotations;
    }
    Patch::Strategic(json!({ "metadata": metadata, "status": status }))
}
