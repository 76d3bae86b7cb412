//! Decides the next step for a VolumeSnapshotContent.

use tonic::{Code, Status};
use wharf_cluster::{Meta, VolumeSnapshotContent};
use wharf_csi::ErrorClass;
use wharf_facts::{annotation, finalizer};

/// The next step for a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, or another component acts.
    Nothing,
    /// CreateSnapshot: take the snapshot, or check whether it is ready by now.
    Create,
    /// ListSnapshots: check whether the driver has the snapshot.
    Check,
    /// It is ready, but still marked as being taken.
    Unmark,
    /// DeleteSnapshot.
    Delete,
    /// The snapshot is deleted or retained: remove the finalizer.
    Release,
}

/// The next step for a content.
pub(super) fn next(content: &VolumeSnapshotContent) -> Step {
    let source = &content.spec.source;
    if may_be_deleted(content) {
        return if is_to_be_deleted_in_driver(content) {
            Step::Delete
        } else if content.metadata.has_finalizer(finalizer::CONTENT_BOUND_PROTECTION) {
            Step::Release
        } else {
            Step::Nothing
        };
    }
    if content.is_ready() {
        return if is_being_created(&content.metadata) { Step::Unmark } else { Step::Nothing };
    }
    match (&source.snapshot_handle, &source.volume_handle) {
        // Group snapshots are handled as a whole, by other controllers.
        _ if is_in_group(content) => Step::Nothing,
        (Some(_), _) => Step::Check,
        (None, Some(_)) => Step::Create,
        (None, None) => Step::Nothing,
    }
}

/// Whether CreateSnapshot may have been called without a final answer.
pub(crate) fn is_being_created(metadata: &Meta) -> bool {
    metadata.annotations.get(annotation::SNAPSHOT_BEING_CREATED).is_some()
}

/// Whether an error of CreateSnapshot means that the driver is not taking the snapshot. An error
/// about the caller, or about a snapshot that differs from the request, does not show the outcome
/// of an earlier call without a final answer.
pub(super) fn is_settling(status: &Status, is_repeated: bool) -> bool {
    let tells_nothing = matches!(
        status.code(),
        Code::AlreadyExists | Code::Unauthenticated | Code::PermissionDenied
    );
    wharf_csi::class(status, true) == ErrorClass::Final && !(is_repeated && tells_nothing)
}

fn may_be_deleted(content: &VolumeSnapshotContent) -> bool {
    let metadata = &content.metadata;
    let unbound = content.spec.source.snapshot_handle.is_some()
        && content.spec.volume_snapshot_ref.uid.is_empty();
    // If it were deleted now, a snapshot in progress would stay in the driver for ever.
    let annotated = metadata.annotations.get(annotation::SNAPSHOT_BEING_DELETED).is_some()
        && !is_being_created(metadata);
    metadata.deleting && (unbound || annotated)
}

fn is_to_be_deleted_in_driver(content: &VolumeSnapshotContent) -> bool {
    content.spec.deletion_policy == "Delete"
        && content.status.as_ref().is_some_and(|status| {
            status.snapshot_handle.is_some() && status.volume_group_snapshot_handle.is_none()
        })
}

fn is_in_group(content: &VolumeSnapshotContent) -> bool {
    let status = content.status.as_ref();
    content.metadata.annotations.get(annotation::GROUP_SNAPSHOT_HANDLE).is_some()
        || status.is_some_and(|status| status.volume_group_snapshot_handle.is_some())
}

/// The reaction to a change of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// No relevant change: the status and one mark are our own.
    None,
    /// Queue it after its back-off.
    Wake,
    /// Queue it now: the earlier failure was about a different request.
    Renew,
    /// It is gone.
    Forget,
}

/// The reaction to a change.
pub(super) fn reaction(
    old: Option<&VolumeSnapshotContent>,
    new: Option<&VolumeSnapshotContent>,
) -> Reaction {
    let (old, new) = match (old, new) {
        (_, None) => return Reaction::Forget,
        (None, Some(_)) => return Reaction::Renew,
        (Some(old), Some(new)) => (old, new),
    };
    let (before, after) = (&old.metadata, &new.metadata);
    let deletable = |content| may_be_deleted(content);
    if before.uid != after.uid || old.spec != new.spec || deletable(old) != deletable(new) {
        return Reaction::Renew;
    }
    let others = |metadata: &Meta| {
        let own = annotation::SNAPSHOT_BEING_CREATED;
        let of_others = metadata.annotations.iter().filter(|(key, _)| *key != own);
        of_others.map(|(key, value)| (key.to_owned(), value.to_owned())).collect::<Vec<_>>()
    };
    let same = before.deleting == after.deleting
        && old.is_ready() == new.is_ready()
        && before.labels == after.labels
        && others(before) == others(after);
    if same { Reaction::None } else { Reaction::Wake }
}

#[cfg(test)]
mod tests;
