use serde::Deserialize;

use super::{Attributes, Index, IndexedBy, InternedStr, Kind, Meta, PersistentVolumeSpec};

/// A VolumeAttachment.
///
/// The errors in its status are not kept: a writer replaces them whole, and no decision depends on
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    /// The metadata.
    pub metadata: Meta,
    /// The spec.
    pub spec: VolumeAttachmentSpec,
    /// The status.
    pub status: VolumeAttachmentStatus,
}

/// The volume, the node and the attacher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// The driver that attaches the volume.
    pub attacher: InternedStr,
    /// The node.
    pub node_name: InternedStr,
    /// The volume.
    pub source: VolumeAttachmentSource,
}

/// The source of an attachment: exactly one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    /// The name of a PersistentVolume.
    pub persistent_volume_name: Option<String>,
    /// An inline volume, without a PersistentVolume.
    pub inline_volume_spec: Option<Box<PersistentVolumeSpec>>,
}

/// The status of an attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentStatus {
    /// Whether the volume is attached.
    pub attached: bool,
    /// The publish context from ControllerPublishVolume.
    pub attachment_metadata: Attributes,
}

impl VolumeAttachment {
    /// Index by the name of the PersistentVolume.
    pub const BY_VOLUME: Index = Index(0);
    /// Index by the name of the node.
    pub const BY_NODE: Index = Index(1);
}

impl Kind for VolumeAttachment {
    const KIND: &'static str = "VolumeAttachment";
    const GROUP: &'static str = "/apis/storage.k8s.io/v1";
    const RESOURCE: &'static str = "volumeattachments";
    const INDEXES: &'static [IndexedBy<Self>] = &[
        |attachment, found| {
            if let Some(volume) = &attachment.spec.source.persistent_volume_name {
                found(volume);
            }
        },
        |attachment, found| found(&attachment.spec.node_name),
    ];

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
