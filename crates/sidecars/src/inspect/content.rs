//! Explains what a VolumeSnapshotContent waits for.

use wharf_cluster::VolumeSnapshotContent;

use super::{ClusterSnapshot, Finding, Listed, Wait};
use crate::{
    snapshot_class::driver_parameters,
    snapshotter::{is_being_created, noted_parameters},
};

pub(super) fn finding(
    cluster: &ClusterSnapshot,
    content: &Listed<VolumeSnapshotContent>,
) -> Finding {
    let object = &content.object;
    let (stage, wait) = match (object.metadata.deleting, object.is_ready()) {
        (true, _) => ("Terminating", deleting(cluster, object)),
        (false, true) => ("Ready", None),
        (false, false) => ("Pending", pending(cluster, object)),
    };
    let error = object.status.as_ref().and_then(|status| status.error.as_ref());
    let last_error = error.and_then(|error| error.message.clone()).filter(|_| wait.is_some());
    let finding = cluster.finding("content", content, stage, wait);
    Finding { last_error: last_error.or(finding.last_error), ..finding }
}

/// The wait of a content that is not ready.
pub(super) fn pending(cluster: &ClusterSnapshot, content: &VolumeSnapshotContent) -> Option<Wait> {
    let driver = &content.spec.driver;
    if let Some(wait) = classless(cluster, content) {
        return Some(wait);
    }
    let what = match &content.spec.source.snapshot_handle {
        Some(handle) => format!("driver {driver} has to find snapshot {handle}"),
        None => format!("driver {driver} has to take it"),
    };
    Wait::new("snapshotter", what)
}

/// The wait of a content whose class does not allow a call about its snapshot.
fn classless(cluster: &ClusterSnapshot, content: &VolumeSnapshotContent) -> Option<Wait> {
    let is_marked = is_being_created(&content.metadata);
    let is_dynamic = content.spec.source.snapshot_handle.is_none();
    let class = content.spec.volume_snapshot_class_name.as_deref().filter(|_| is_dynamic)?;
    let trouble = match cluster.snapshot_class(class) {
        None => "does not exist",
        Some(found) if driver_parameters(&found.object.parameters).is_err() => "is refused",
        Some(_) => return None,
    };
    if !is_marked {
        return Wait::new("a person", format!("VolumeSnapshotClass {class} {trouble}"));
    }
    if noted_parameters(content).is_some() {
        return None;
    }
    let driver = &content.spec.driver;
    let what = format!(
        "driver {driver} may have a snapshot for it, and VolumeSnapshotClass {class}, by which it was asked for, {trouble}: bring it \
         back as it was"
    );
    Wait::new("a person", what)
}

/// The wait of a content that is being deleted, unless a bound snapshot keeps it.
pub(super) fn leaving(cluster: &ClusterSnapshot, content: &VolumeSnapshotContent) -> Option<Wait> {
    let driver = &content.spec.driver;
    if is_being_created(&content.metadata) {
        let again = || {
            let what = format!(
                "CreateSnapshot has no final answer: driver {driver} is asked again, and then to delete the snapshot"
            );
            Wait::new("snapshotter", what)
        };
        return classless(cluster, content).or_else(again);
    }
    match content.spec.deletion_policy.as_str() {
        "Delete" => Wait::new("snapshotter", format!("driver {driver} has to delete it")),
        _ => Wait::new("snapshotter", "its finalizer has to go, and the driver keeps the snapshot"),
    }
}

fn deleting(cluster: &ClusterSnapshot, content: &VolumeSnapshotContent) -> Option<Wait> {
    let of = &content.spec.volume_snapshot_ref;
    let snapshot = cluster.snapshot(&of.namespace, &of.name);
    let is_bound =
        snapshot.is_some_and(|it| it.object.metadata.uid == of.uid && !it.object.metadata.deleting);
    if is_bound {
        let what = format!(
            "VolumeSnapshot {}/{} is bound to it and has to go first",
            of.namespace, of.name
        );
        return Wait::new("a person", what);
    }
    leaving(cluster, content)
}
