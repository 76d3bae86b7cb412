//! What an object needs next.

use wharf_cluster::{PersistentVolume, VolumeAttachment};
use wharf_csi::Capabilities;
use wharf_facts::annotation;
use wharf_proto::csi::{controller_service_capability::rpc, plugin_capability::service};

/// What a driver can do about attachments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// It attaches and detaches; where not, nothing has to be.
    pub(super) publishes: bool,
    /// It attaches for readers only.
    pub(super) read_only: bool,
    /// It tells one writer on a node from several.
    pub(super) single_node_multi_writer: bool,
    /// It tells where its volumes are attached.
    pub(super) lists_nodes: bool,
}

impl Abilities {
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

/// What a VolumeAttachment needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is as it should be.
    Nothing,
    /// The driver has to attach the volume.
    Attach,
    /// The driver has to detach the volume.
    Detach,
    /// There is nothing to attach, and others have to be told so.
    MarkAttached,
}

/// The next step for an attachment. `publishes` tells whether the driver attaches at all, `forced` that the API is not to
/// be believed.
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
        // The finalizer stands for a ControllerPublishVolume that may have been called.
        let held = attachment.metadata.has_finalizer(finalizer);
        return if held || forced { Step::Detach } else { Step::Nothing };
    }
    if attached && !forced { Step::Nothing } else { Step::Attach }
}

/// What a change of a VolumeAttachment is a reason for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// It is as it should be, or nothing that counts has changed: errors in the status are our own.
    None,
    /// Look at it when its back-off allows.
    Wake,
    /// Look at it now: what failed before was another question.
    Renew,
    /// It is gone.
    Forget,
}

/// The reaction to a change.
pub(super) fn reaction(old: Option<&VolumeAttachment>, new: Option<&VolumeAttachment>) -> Reaction {
    match (old, new) {
        (_, None) => Reaction::Forget,
        // At a start these are nearly all that there are.
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

/// Whether our finalizer has to leave a PersistentVolume once no attachment names it: the volume is being deleted, or it
/// is of an in-tree plugin that was given back its own.
pub(super) fn releases(volume: &PersistentVolume, finalizer: &str, driver: &str) -> bool {
    if !volume.metadata.has_finalizer(finalizer) {
        return false;
    }
    let migrated = volume.metadata.annotations.get(annotation::MIGRATED_TO);
    let given_back = volume.spec.csi.is_none() && migrated.is_none_or(|to| to != driver);
    volume.metadata.deleting || given_back
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
