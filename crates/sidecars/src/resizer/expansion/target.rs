//! Computes the size of an expansion from the requested size, the size in progress, and its state.

use wharf_cluster::{PersistentVolume, PersistentVolumeClaim, Size};

pub(super) const CONTROLLER_IN_PROGRESS: &str = "ControllerResizeInProgress";
pub(super) const CONTROLLER_INFEASIBLE: &str = "ControllerResizeInfeasible";
pub(super) const NODE_PENDING: &str = "NodeResizePending";
pub(super) const NODE_IN_PROGRESS: &str = "NodeResizeInProgress";
pub(super) const NODE_INFEASIBLE: &str = "NodeResizeInfeasible";
pub(super) const FILESYSTEM_PENDING: &str = "FileSystemResizePending";

/// Whether a claim requests more than it has.
pub(super) fn grows(claim: &PersistentVolumeClaim) -> bool {
    claim.requested() > Some(claim.status.capacity.storage.unwrap_or_default())
}

/// Whether the node has finished its part for a volume.
pub(super) fn is_complete(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    claim.status.capacity.storage >= volume.spec.capacity.storage
}

/// Whether a claim is marked as one whose volume the driver may be expanding.
pub(super) fn is_in_controller(claim: &PersistentVolumeClaim) -> bool {
    claim.status.allocated_resource_statuses.storage.as_deref() == Some(CONTROLLER_IN_PROGRESS)
}

/// The target size of a claim that [`grows`]; `None` if the node has to act.
///
/// A size in progress must not be abandoned while the driver or the node may still work on it:
/// quota and filesystem follow it. `in_controller`: the driver has ControllerExpandVolume. `idle`:
/// the driver is known not to work on the size in progress, because it returned a final error or
/// was never called.
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
            // The node goes first, unless the volume is smaller than the size in progress.
            NODE_PENDING | NODE_IN_PROGRESS => (size < begun).then_some(begun),
            CONTROLLER_IN_PROGRESS if !idle => Some(begun),
            _ => Some(requested),
        };
    }
    match status {
        NODE_PENDING | NODE_IN_PROGRESS => None,
        // The kubelet retries after the controller has.
        NODE_INFEASIBLE => Some(if in_controller { begun } else { requested }),
        CONTROLLER_IN_PROGRESS | CONTROLLER_INFEASIBLE => Some(begun),
        "" if allocated.is_some() => allocated,
        // An API server that drops the status of an expansion: only the condition remains.
        _ => (!crate::resizer::status::has(claim, FILESYSTEM_PENDING)).then_some(requested),
    }
}

#[cfg(test)]
mod tests;
