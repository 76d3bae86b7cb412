//! From objects to the driver's calls.

use std::collections::BTreeMap;

use wharf_cluster::{
    CsiNode, CsiVolumeSource, PersistentVolume, PersistentVolumeSpec, SecretReference,
    VolumeAttachment,
};
use wharf_facts::annotation;
use wharf_proto::csi::ControllerPublishVolumeRequest;

use super::{decide::Abilities, failure::Refusal};
use crate::capability;

/// Which volume an attachment is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// The PersistentVolume of this name.
    Named(&'a str),
    /// One that the attachment describes itself.
    Inline(&'a PersistentVolumeSpec, &'a CsiVolumeSource),
}

impl<'a> Source<'a> {
    pub(super) fn of(attachment: &'a VolumeAttachment) -> Result<Self, Refusal> {
        let source = &attachment.spec.source;
        match (&source.persistent_volume_name, &source.inline_volume_spec) {
            (Some(_), Some(_)) => Err(Refusal::BothSources),
            (None, None) => Err(Refusal::NoSource),
            (Some(name), None) => Ok(Self::Named(name)),
            (None, Some(spec)) => {
                Ok(Self::Inline(spec, spec.csi.as_ref().ok_or(Refusal::InlineWithoutCsi)?))
            }
        }
    }
}

/// The volume in its driver.
pub(super) fn csi(volume: &PersistentVolume) -> Result<&CsiVolumeSource, Refusal> {
    volume.spec.csi.as_ref().ok_or(Refusal::InTree)
}

/// The node's id that the driver gave for it, from the node's CSINode.
pub(super) fn node_id(driver: &str, name: &str, node: Option<&CsiNode>) -> Result<String, Refusal> {
    let node = node.ok_or_else(|| Refusal::UnknownNode(name.to_owned()))?;
    let id = node.node_id(driver).map(str::to_owned);
    id.ok_or_else(|| Refusal::NotOnNode { node: name.to_owned(), driver: driver.to_owned() })
}

/// What a detach needs to know of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttachedVolume {
    pub(super) handle: String,
    pub(super) secret: Option<SecretReference>,
}

impl AttachedVolume {
    pub(super) fn of(csi: &CsiVolumeSource) -> Self {
        let secret = csi.controller_publish_secret_ref.as_deref().cloned();
        Self { handle: csi.volume_handle.clone(), secret }
    }

    /// The volume that was noted on an attachment before the driver was asked to attach it.
    pub(super) fn noted_on(attachment: &VolumeAttachment) -> Option<Self> {
        let noted = |key| attachment.metadata.annotations.get(key);
        let handle = noted(annotation::ATTACHMENT_VOLUME_HANDLE)?.to_owned();
        let secret = noted(annotation::ATTACHMENT_SECRET).and_then(|it| it.split_once('/'));
        let secret = secret.map(|(namespace, name)| SecretReference {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        });
        Some(Self { handle, secret })
    }
}

/// The node's id that was noted on an attachment before the driver was asked to attach the volume.
pub(super) fn noted_node_id(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.metadata.annotations.get(annotation::ATTACHMENT_NODE_ID)
}

/// The call that attaches a volume, but for node and secrets.
pub(super) fn publish(
    spec: &PersistentVolumeSpec,
    csi: &CsiVolumeSource,
    abilities: Abilities,
    default_fs_type: &str,
) -> Result<ControllerPublishVolumeRequest, Refusal> {
    let fs_type = if csi.fs_type.is_empty() { default_fs_type } else { &csi.fs_type };
    let capability = capability::of(spec, fs_type, abilities.single_node_multi_writer)?;
    Ok(ControllerPublishVolumeRequest {
        volume_id: csi.volume_handle.clone(),
        node_id: String::new(),
        volume_capability: Some(capability),
        readonly: csi.read_only && abilities.read_only,
        secrets: BTreeMap::new(),
        volume_context: csi.volume_attributes.to_map(),
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
