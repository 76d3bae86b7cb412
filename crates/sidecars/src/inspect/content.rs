//! Explains what a VolumeSnapshotContent waits for.

use wharf_cluster::VolumeSnapshotContent;

use super::{Finding, Listed, Wait, World};

pub(super) fn finding(world: &World, content: &Listed<VolumeSnapshotContent>) -> Finding {
    let object = &content.object;
    let (stage, wait) = match (object.metadata.deleting, object.is_ready()) {
        (true, _) => ("Terminating", deleting(world, object)),
        (false, true) => ("Ready", None),
        (false, false) => ("Pending", pending(object)),
    };
    let error = object.status.as_ref().and_then(|status| status.error.as_ref());
    let last_error = error.and_then(|error| error.message.clone()).filter(|_| wait.is_some());
    let finding = world.finding("content", content, stage, wait);
    Finding { last_error: last_error.or(finding.last_error), ..finding }
}

fn pending(content: &VolumeSnapshotContent) -> Option<Wait> {
    let driver = &content.spec.driver;
    let what = match &content.spec.source.snapshot_handle {
        Some(handle) => format!("driver {driver} has to find snapshot {handle}"),
        None => format!("driver {driver} has to take it"),
    };
    Wait::new("snapshotter", what)
}

fn deleting(world: &World, content: &VolumeSnapshotContent) -> Option<Wait> {
    let (driver, of) = (&content.spec.driver, &content.spec.volume_snapshot_ref);
    let snapshot = world.snapshot(&of.namespace, &of.name);
    let is_bound =
        snapshot.is_some_and(|it| it.object.metadata.uid == of.uid && !it.object.metadata.deleting);
    if is_bound {
        let what = format!(
            "VolumeSnapshot {}/{} is bound to it and has to go first",
            of.namespace, of.name
        );
        return Wait::new("a person", what);
    }
    match content.spec.deletion_policy.as_str() {
        "Delete" => Wait::new("snapshotter", format!("driver {driver} has to delete it")),
        _ => Wait::new("snapshotter", "its finalizer has to go, and the driver keeps the snapshot"),
    }
}
