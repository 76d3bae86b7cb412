use serde::Deserialize;

use super::{Attributes, Index, IndexedBy, Kind, Meta, PersistentVolumeSpec, Word};

/// The wish to have a volume attached to a node.
///
/// The errors in its status are not kept: whoever writes them writes them whole, and nobody decides by them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    /// Its metadata.
    pub metadata: Meta,
    /// What is wished for.
    pub spec: VolumeAttachmentSpec,
    /// What has become of it.
    pub status: VolumeAttachmentStatus,
}

/// Which volume, where, and who is to attach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// The driver that has to attach it.
    pub attacher: Word,
    /// The node.
    pub node_name: Word,
    /// The volume.
    pub source: VolumeAttachmentSource,
}

/// A volume: exactly one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    /// The name of a PersistentVolume.
    pub persistent_volume_name: Option<String>,
    /// A volume that has no object of its own.
    pub inline_volume_spec: Option<Box<PersistentVolumeSpec>>,
}

/// What has become of an attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentStatus {
    /// The volume is attached.
    pub attached: bool,
    /// What the driver said when it attached the volume.
    pub attachment_metadata: Attributes,
}

impl VolumeAttachment {
    /// By the name of the PersistentVolume.
    pub const BY_VOLUME: Index = Index(0);
    /// By the name of the node.
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
