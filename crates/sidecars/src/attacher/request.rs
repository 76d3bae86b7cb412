//! From objects to the driver's calls.

use std::collections::BTreeMap;

use wharf_cluster::{
    CsiNode, CsiVolumeSource, PersistentVolume, PersistentVolumeSpec, VolumeAttachment,
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

/// The node in the driver's words, as its CSINode says now. Without that, `remembered`, an attachment that carries what
/// was used when the volume was attached, will do.
pub(super) fn node_id(
    driver: &str,
    name: &str,
    node: Option<&CsiNode>,
    remembered: Option<&VolumeAttachment>,
) -> Result<String, Refusal> {
    let refusal = match node {
        Some(node) => match node.node_id(driver) {
            Some(id) => return Ok(id.to_owned()),
            None => Refusal::NotOnNode { node: name.to_owned(), driver: driver.to_owned() },
        },
        None => Refusal::UnknownNode(name.to_owned()),
    };
    remembered
        .and_then(|attachment| attachment.metadata.annotations.get(annotation::ATTACHMENT_NODE_ID))
        .map(str::to_owned)
        .ok_or(refusal)
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
