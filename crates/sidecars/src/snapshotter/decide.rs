//! What a VolumeSnapshotContent needs next.

use tonic::{Code, Status};
use wharf_cluster::{Meta, VolumeSnapshotContent};
use wharf_csi::ErrorClass;
use wharf_facts::{annotation, finalizer};

/// What a content needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is as it should be, or someone else's turn.
    Nothing,
    /// The driver has to take the snapshot, or to say whether it is ready by now.
    Create,
    /// The driver has to say whether it has the snapshot.
    Check,
    /// It is ready, and marked as if it were being taken.
    Unmark,
    /// The driver has to delete the snapshot.
    Delete,
    /// The snapshot is gone or kept, and the content may go.
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
        // Groups are taken and looked after as a whole, by others.
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

/// Whether an error of CreateSnapshot tells that the driver is not taking the snapshot. An error about the caller, or about a
/// snapshot that is not as it is asked for, does not tell what became of an earlier call that had no final answer.
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
    // Deleted now, a snapshot that is being taken would stay in the driver for ever.
    let told = metadata.annotations.get(annotation::SNAPSHOT_BEING_DELETED).is_some()
        && !is_being_created(metadata);
    metadata.deleting && (unbound || told)
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

/// What a change of a content is a reason for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Nothing that counts has changed: the status and one mark are our own.
    None,
    /// Look at it when its back-off allows.
    Wake,
    /// Look at it now: what failed before was another question.
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
#[path = "decide_tests.rs"]
mod tests;
