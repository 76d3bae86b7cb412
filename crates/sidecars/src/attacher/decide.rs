//! Decides the next step for an object.

use wharf_cluster::{PersistentVolume, VolumeAttachment};
use wharf_csi::Capabilities;
use wharf_facts::annotation;
use wharf_proto::csi::{controller_service_capability::rpc, plugin_capability::service};

/// The driver's capabilities for attachments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AttachCapabilities {
    /// It attaches and detaches volumes. Without it, attachments are only marked.
    pub(super) publishes: bool,
    /// It accepts read-only attachments.
    pub(super) read_only: bool,
    /// It distinguishes one writer on a node from several.
    pub(super) single_node_multi_writer: bool,
    /// It lists the nodes of attached volumes.
    pub(super) lists_nodes: bool,
}

impl AttachCapabilities {
    pub(super) fn of(capabilities: &Capabilities) -> Self {
        let controller = capabilities.services.contains(&service::Type::ControllerService);
        let has = |rpc| controller && capabilities.controller.contains(&rpc);
        Self {
            publishes: has(rpc::Type::PublishUnpublishVolume),
            read_only: has(rpc::Type::PublishReadonly),
            single_node_multi_writer: has(rpc::Type::SingleNodeMultiWriter),
            lists_nodes: has(rpc::Type::ListVolumes) && has(rpc::Type::ListVolumesPublishedNodes),
        }
    }
}

/// The next step for a VolumeAttachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do.
    Nothing,
    /// Call ControllerPublishVolume.
    Attach,
    /// Call ControllerUnpublishVolume.
    Detach,
    /// Mark as attached without a call.
    MarkAttached,
}

/// The next step for an attachment. `publishes`: the driver implements ControllerPublishVolume.
/// `forced`: the attachment's status may be wrong.
pub(super) fn next(
    attachment: &VolumeAttachment,
    finalizer: &str,
    publishes: bool,
    forced: bool,
) -> Step {
    let attached = attachment.status.attached;
    if !publishes {
        return if attached { Step::Nothing } else { Step::MarkAttached };
    }
    if attachment.metadata.deleting {
        // The finalizer means that ControllerPublishVolume may have been called.
        let held = attachment.metadata.has_finalizer(finalizer);
        return if held || forced { Step::Detach } else { Step::Nothing };
    }
    if attached && !forced { Step::Nothing } else { Step::Attach }
}

/// The reaction to a change of a VolumeAttachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Nothing to do, or no relevant change: errors in the status are our own.
    None,
    /// Queue it after its back-off.
    Wake,
    /// Queue it now: the earlier failure was about a different request.
    Renew,
    /// It is gone.
    Forget,
}

/// The reaction to a change.
pub(super) fn reaction(old: Option<&VolumeAttachment>, new: Option<&VolumeAttachment>) -> Reaction {
    match (old, new) {
        (_, None) => Reaction::Forget,
        // After a start these are nearly all attachments.
        (_, Some(new)) if new.status.attached && !new.metadata.deleting => Reaction::None,
        (None, Some(_)) => Reaction::Renew,
        (Some(old), Some(new)) => {
            let (before, after) = (&old.metadata, &new.metadata);
            if before.uid != after.uid || before.deleting != after.deleting {
                return Reaction::Renew;
            }
            let same = old.spec == new.spec
                && old.status == new.status
                && before.finalizers == after.finalizers
                && before.annotations == after.annotations;
            if same { Reaction::None } else { Reaction::Wake }
        }
    }
}

/// Whether our finalizer has to be removed from a PersistentVolume once no attachment names it: the
/// volume is being deleted, or it is of an in-tree plugin whose migration was undone.
pub(super) fn releases(volume: &PersistentVolume, finalizer: &str, driver: &str) -> bool {
    if !volume.metadata.has_finalizer(finalizer) {
        return false;
    }
    let migrated = volume.metadata.annotations.get(annotation::MIGRATED_TO);
    let given_back = volume.spec.csi.is_none() && migrated.is_none_or(|to| to != driver);
    volume.metadata.deleting || given_back
}

#[cfg(test)]
mod tests;
