//! Builds the patches of claims and volumes for an expansion.

use jiff::Timestamp;
use serde_json::{Value, json};
use wharf_cluster::{Patch, PersistentVolume, PersistentVolumeClaim, Size};
use wharf_facts::annotation;

use super::target::{
    CONTROLLER_IN_PROGRESS, CONTROLLER_INFEASIBLE, FILESYSTEM_PENDING, NODE_IN_PROGRESS,
    NODE_PENDING,
};
use crate::resizer::status::{guarded, has, time, unguarded, without};

const RESIZING: &str = "Resizing";
const CONTROLLER_ERROR: &str = "ControllerResizeError";
const NODE_ERROR: &str = "NodeResizeError";
const ALL: &[&str] = &[RESIZING, FILESYSTEM_PENDING, CONTROLLER_ERROR, NODE_ERROR];

/// Marks the claim: an expansion to `target` begins, or continues. `None` if the claim is marked
/// already.
pub(super) fn in_progress(
    claim: &PersistentVolumeClaim,
    target: Size,
    now: Timestamp,
) -> Option<Patch> {
    let goes_on = claim.status.allocated_resources.storage == Some(target);
    let annotations = required(claim);
    if goes_on && has(claim, RESIZING) && annotations.is_none() {
        return None;
    }
    let mut conditions = vec![condition(RESIZING, None, now)];
    let mut status = json!({ "allocatedResources": { "storage": target.to_string() } });
    if !goes_on {
        conditions.extend(without(claim, &[FILESYSTEM_PENDING, CONTROLLER_ERROR, NODE_ERROR]));
        status["allocatedResourceStatuses"] = json!({ "storage": CONTROLLER_IN_PROGRESS });
    }
    status["conditions"] = Value::Array(conditions);
    Some(guarded(&claim.metadata, annotations, &status))
}

/// Records that the driver has expanded the volume to this size, and that the node has to follow.
/// `None` if the node knows or has followed already: it would not do so again, and the claim would
/// wait for ever.
pub(super) fn node_pending(
    claim: &PersistentVolumeClaim,
    size: Size,
    now: Timestamp,
) -> Option<Patch> {
    let has_followed = claim.status.capacity.storage >= Some(size);
    match claim.status.allocated_resource_statuses.storage.as_deref() {
        Some(NODE_PENDING | NODE_IN_PROGRESS) => return None,
        None | Some("") if has_followed => return None,
        _ => {}
    }
    let message =
        "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";
    let status = json!({
        "allocatedResourceStatuses": { "storage": NODE_PENDING },
        "conditions": [condition(FILESYSTEM_PENDING, Some(message), now)],
    });
    Some(guarded(&claim.metadata, required(claim), &status))
}

/// Whether the node still has to follow.
pub(super) fn is_node_pending(claim: &PersistentVolumeClaim) -> bool {
    has(claim, FILESYSTEM_PENDING)
}

/// Records that the expansion is complete: the claim has this size now.
pub(super) fn finished(claim: &PersistentVolumeClaim, size: Size) -> Patch {
    let conditions: Vec<Value> = without(claim, ALL).collect();
    let mut status = json!({
        "capacity": { "storage": size.to_string() },
        "allocatedResourceStatuses": { "storage": null },
    });
    if !conditions.is_empty() {
        status["conditions"] = Value::Array(conditions);
    }
    // Otherwise the kubelet would expand the filesystem again.
    let annotations = json!({ annotation::NODE_EXPANSION_NOT_REQUIRED: "true" });
    guarded(&claim.metadata, Some(annotations), &status)
}

/// Records a final error; `infeasible`: the driver will return it again.
pub(super) fn failed(
    claim: &PersistentVolumeClaim,
    error: &str,
    infeasible: bool,
    now: Timestamp,
) -> Patch {
    let message = format!("failed to expand pvc with {error}");
    let mut status = json!({ "conditions": [condition(CONTROLLER_ERROR, Some(&message), now)] });
    if infeasible {
        status["allocatedResourceStatuses"] = json!({ "storage": CONTROLLER_INFEASIBLE });
    }
    unguarded(&claim.metadata, &status)
}

/// Sets the size of the volume. If the node has yet to follow, the claim's earlier size is noted,
/// so that a claim that is bound meanwhile does not promise more than its filesystem has.
pub(super) fn capacity(volume: &PersistentVolume, size: Size, before: Option<Size>) -> Patch {
    let mut metadata = json!({ "uid": volume.metadata.uid });
    let key = annotation::PRE_RESIZE_CAPACITY;
    if let Some(before) = before
        && volume.metadata.annotations.get(key).is_none()
    {
        metadata["annotations"] = json!({ key: before.to_string() });
    }
    let spec = json!({ "capacity": { "storage": size.to_string() } });
    Patch::Merge(json!({ "metadata": metadata, "spec": spec }))
}

/// Removes the note of the earlier size: the node has followed.
pub(super) fn settled(volume: &PersistentVolume) -> Patch {
    let annotations = json!({ annotation::PRE_RESIZE_CAPACITY: null });
    Patch::Merge(json!({ "metadata": { "uid": volume.metadata.uid, "annotations": annotations } }))
}

/// Whether the node may have to expand the filesystem after all.
fn required(claim: &PersistentVolumeClaim) -> Option<Value> {
    let key = annotation::NODE_EXPANSION_NOT_REQUIRED;
    claim.metadata.annotations.get(key).map(|_| json!({ key: null }))
}

fn condition(kind: &str, message: Option<&str>, now: Timestamp) -> Value {
    json!({
        "type": kind,
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": time(now),
        "reason": null,
        "message": message,
    })
}

#[cfg(test)]
mod tests;
