//! Builds the patches of VolumeSnapshots.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use wharf_cluster::{
    Patch, Size, SnapshotError, VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotStatus,
};
use wharf_facts::finalizer;

use super::document::with;

/// Prepares a snapshot before anything else: sets its class if it named none, and adds the
/// finalizers. `None` if it is complete.
pub(super) fn prepare(
    snapshot: &VolumeSnapshot,
    default_class: Option<&str>,
    with_content: bool,
) -> Option<Patch> {
    let mut wanted = vec![finalizer::SNAPSHOT_SOURCE_PROTECTION];
    if with_content {
        wanted.push(finalizer::SNAPSHOT_BOUND_PROTECTION);
    }
    let finalizers = with(&snapshot.metadata, &wanted);
    let held = finalizers.len() == snapshot.metadata.finalizers.len();
    let class = default_class.filter(|_| snapshot.spec.volume_snapshot_class_name.is_none());
    if held && class.is_none() || snapshot.metadata.deleting {
        return None;
    }
    let mut patch =
        json!({ "metadata": { "resourceVersion": snapshot.metadata.resource_version } });
    if !held {
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
    if let Some(class) = class {
        patch["spec"] = json!({ "volumeSnapshotClassName": class });
    }
    Some(Patch::Merge(patch))
}

/// Removes our finalizers from a snapshot. `None` if there are none.
pub(super) fn release(snapshot: &VolumeSnapshot) -> Option<Patch> {
    let ours = [finalizer::SNAPSHOT_SOURCE_PROTECTION, finalizer::SNAPSHOT_BOUND_PROTECTION];
    let metadata = &snapshot.metadata;
    let others: Vec<_> =
        metadata.finalizers.iter().filter(|it| !ours.contains(&it.as_str())).collect();
    if others.len() == metadata.finalizers.len() {
        return None;
    }
    let others = if others.is_empty() { Value::Null } else { json!(others) };
    Some(Patch::metadata(metadata, json!({ "finalizers": others })))
}

/// Copies the state of a content to its snapshot. `None` if the snapshot shows it already.
pub(super) fn mirror(snapshot: &VolumeSnapshot, content: &VolumeSnapshotContent) -> Option<Patch> {
    let nothing = VolumeSnapshotStatus::default();
    let old = snapshot.status.as_deref().unwrap_or(&nothing);
    let found = content.status.clone().unwrap_or_default();
    let mut new = Map::new();
    let mut set = |key: &str, value: Value| drop(new.insert(key.to_owned(), value));
    if old.bound_volume_snapshot_content_name.is_none() {
        set("boundVolumeSnapshotContentName", json!(content.metadata.name));
    }
    let ready = found.ready_to_use == Some(true);
    if old.ready_to_use != Some(ready) {
        set("readyToUse", json!(ready));
    }
    if let (None, Some(time)) = (&old.creation_time, found.creation_time) {
        let time = Timestamp::from_nanosecond(time.into()).unwrap_or_default();
        set("creationTime", json!(text(time)));
    }
    let unknown = old.restore_size.is_none_or(|size| size == Size(0));
    if let Some(size) = found.restore_size
        && unknown
        && old.restore_size != Some(Size(size))
    {
        set("restoreSize", json!(Size(size).to_string()));
    }
    if old.error != found.error {
        set("error", found.error.as_ref().map_or(Value::Null, error_document));
    }
    (!new.is_empty()).then(|| Patch::status(&snapshot.metadata, &Value::Object(new)))
}

/// Records an error. `None` if the status has it already.
pub(super) fn error(
    snapshot: &VolumeSnapshot,
    message: &str,
    unusable: bool,
    now: Timestamp,
) -> Option<Patch> {
    let error = snapshot.status.as_ref().and_then(|status| status.error.as_ref());
    if error.is_some_and(|error| error.message.as_deref() == Some(message)) {
        return None;
    }
    let mut status = json!({ "error": { "message": message, "time": text(now) } });
    if unusable {
        status["readyToUse"] = json!(false);
    }
    Some(Patch::status(&snapshot.metadata, &status))
}

fn error_document(error: &SnapshotError) -> Value {
    // Both fields are written, so that none of an earlier error remains.
    json!({ "message": error.message, "time": error.time })
}

fn text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
