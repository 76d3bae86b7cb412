//! How large a volume is to become, from what was asked for, what was begun, and how far that came.

use wharf_cluster::{PersistentVolume, PersistentVolumeClaim, Size};

pub(super) const CONTROLLER_IN_PROGRESS: &str = "ControllerResizeInProgress";
pub(super) const CONTROLLER_INFEASIBLE: &str = "ControllerResizeInfeasible";
pub(super) const NODE_PENDING: &str = "NodeResizePending";
pub(super) const NODE_IN_PROGRESS: &str = "NodeResizeInProgress";
pub(super) const NODE_INFEASIBLE: &str = "NodeResizeInfeasible";
pub(super) const FILESYSTEM_PENDING: &str = "FileSystemResizePending";

/// Whether a claim asks for more than it has.
pub(super) fn grows(claim: &PersistentVolumeClaim) -> bool {
    claim.requested() > Some(claim.status.capacity.storage.unwrap_or_default())
}

/// Whether the node has finished what it was left to do for a volume.
pub(super) fn is_complete(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    claim.status.capacity.storage >= volume.spec.capacity.storage
}

/// Whether a claim is marked as one whose volume the driver may be growing.
pub(super) fn is_in_controller(claim: &PersistentVolumeClaim) -> bool {
    claim.status.allocated_resource_statuses.storage.as_deref() == Some(CONTROLLER_IN_PROGRESS)
}

/// The size that a claim that [`grows`] is worked towards; `None` where it is someone else's turn.
///
/// A size that was begun may not be given up while the driver or the node may still work on it: quota and filesystem
/// follow it. `in_controller` tells whether the driver grows volumes there, `idle` that it is known not to work on what was
/// begun: it has refused for certain, or was never asked.
pub(super) fn target(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    in_controller: bool,
    idle: bool,
) -> Option<Size> {
    let requested = claim.requested()?;
    let size = volume.spec.capacity.storage.unwrap_or_default();
    let allocated = claim.status.allocated_resources.storage;
    let begun = allocated.unwrap_or(requested);
    let status = claim.status.allocated_resource_statuses.storage.as_deref().unwrap_or_default();
    if size < requested {
        return match status {
            NODE_INFEASIBLE => Some(begun),
            // The node goes first, unless the volume is not even as large as was begun.
            NODE_PENDING | NODE_IN_PROGRESS => (size < begun).then_some(begun),
            CONTROLLER_IN_PROGRESS if !idle => Some(begun),
            _ => Some(requested),
        };
    }
    match status {
        NODE_PENDING | NODE_IN_PROGRESS => None,
        // The kubelet tries again after the controller has.
        NODE_INFEASIBLE => Some(if in_controller { begun } else { requested }),
        CONTROLLER_IN_PROGRESS | CONTROLLER_INFEASIBLE => Some(begun),
        "" if allocated.is_some() => allocated,
        // An API server that keeps no status of a growth: the condition is all there is.
        _ => (!crate::resizer::status::has(claim, FILESYSTEM_PENDING)).then_some(requested),
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
