//! Builds the driver's requests from objects.

use std::collections::BTreeMap;

use wharf_cluster::{
    CsiNode, CsiVolumeSource, PersistentVolume, PersistentVolumeSpec, SecretReference,
    VolumeAttachment,
};
use wharf_facts::annotation;
use wharf_proto::csi::ControllerPublishVolumeRequest;

use super::{decide::AttachCapabilities, failure::AttachRefusal};
use crate::capability;

/// The volume of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachmentSource<'a> {
    /// The PersistentVolume of this name.
    Named(&'a str),
    /// An inline volume.
    Inline(&'a PersistentVolumeSpec, &'a CsiVolumeSource),
}

impl<'a> AttachmentSource<'a> {
    pub(super) fn of(attachment: &'a VolumeAttachment) -> Result<Self, AttachRefusal> {
        let source = &attachment.spec.source;
        match (&source.persistent_volume_name, &source.inline_volume_spec) {
            (Some(_), Some(_)) => Err(AttachRefusal::BothSources),
            (None, None) => Err(AttachRefusal::NoSource),
            (Some(name), None) => Ok(Self::Named(name)),
            (None, Some(spec)) => {
                Ok(Self::Inline(spec, spec.csi.as_ref().ok_or(AttachRefusal::InlineWithoutCsi)?))
            }
        }
    }
}

/// The CSI source of a volume.
pub(super) fn csi(volume: &PersistentVolume) -> Result<&CsiVolumeSource, AttachRefusal> {
    volume.spec.csi.as_ref().ok_or(AttachRefusal::InTree)
}

/// The node ID for the driver, from the node's CSINode.
pub(super) fn node_id(
    driver: &str,
    name: &str,
    node: Option<&CsiNode>,
) -> Result<String, AttachRefusal> {
    let node = node.ok_or_else(|| AttachRefusal::UnknownNode(name.to_owned()))?;
    let id = node.node_id(driver).map(str::to_owned);
    id.ok_or_else(|| AttachRefusal::NotOnNode { node: name.to_owned(), driver: driver.to_owned() })
}

/// The data of a volume that a detach needs.
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

    /// The volume that was noted on an attachment before the ControllerPublishVolume call.
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

/// The node ID that was noted on an attachment before the ControllerPublishVolume call.
pub(super) fn noted_node_id(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.metadata.annotations.get(annotation::ATTACHMENT_NODE_ID)
}

/// The ControllerPublishVolume request, without node and secrets.
pub(super) fn publish(
    spec: &PersistentVolumeSpec,
    csi: &CsiVolumeSource,
    capabilities: AttachCapabilities,
    default_fs_type: &str,
) -> Result<ControllerPublishVolumeRequest, AttachRefusal> {
    let fs_type = if csi.fs_type.is_empty() { default_fs_type } else { &csi.fs_type };
    let capability = capability::of(spec, fs_type, capabilities.single_node_multi_writer)?;
    Ok(ControllerPublishVolumeRequest {
        volume_id: csi.volume_handle.clone(),
        node_id: String::new(),
        volume_capability: Some(capability),
        readonly: csi.read_only && capabilities.read_only,
        secrets: BTreeMap::new(),
        volume_context: csi.volume_attributes.to_map(),
    })
}

#[cfg(test)]
mod tests;
