//! The kinds that wharf reads, trimmed to the fields that it uses: one set for all controllers.
//!
//! A whole PersistentVolume takes kilobytes, most of them bookkeeping of the API. Here unused
//! fields are skipped while the JSON is decoded, and never take memory. Such a struct is for
//! reading only: written back, it would erase the fields that it lacks, and so none of them can be
//! serialised.

mod attributes;
mod attributes_class;
mod claim;
mod csi_node;
mod group_snapshot;
mod interned_str;
mod meta;
mod node;
mod persistent_volume;
mod pod;
mod size;
mod snapshot;
mod storage_capacity;
mod storage_class;
mod volume_attachment;

use serde::de::DeserializeOwned;

pub use attributes::Attributes;
pub use attributes_class::VolumeAttributesClass;
pub use claim::{
    ClaimCondition, DataSource, ModifyStatus, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus, Requests, ResizeStatus,
};
pub use csi_node::{CsiNode, CsiNodeDriver, CsiNodeSpec};
pub use group_snapshot::{
    VolumeGroupSnapshot, VolumeGroupSnapshotContent, VolumeGroupSnapshotContentSpec,
};
pub use interned_str::InternedStr;
pub use meta::Meta;
pub use node::Node;
pub use persistent_volume::{
    ClaimReference, CsiVolumeSource, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PersistentVolume, PersistentVolumeSpec, PersistentVolumeStatus,
    SecretReference,
};
pub use pod::{Pod, PodSpec, PodStatus};
pub use size::{Size, Sizes};
pub use snapshot::{
    SnapshotError, SnapshotReference, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent,
    VolumeSnapshotContentSource, VolumeSnapshotContentSpec, VolumeSnapshotContentStatus,
    VolumeSnapshotSource, VolumeSnapshotSpec, VolumeSnapshotStatus,
};
pub use storage_capacity::{CsiStorageCapacity, LabelSelector, Owner};
pub use storage_class::{StorageClass, TopologyRequirement, TopologyTerm};
pub use volume_attachment::{
    VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus,
};

/// A kind of the API, and where it is served.
pub trait Kind: DeserializeOwned + Clone + Send + Sync + 'static {
    /// The kind's name, such as `VolumeAttachment`.
    const KIND: &'static str;
    /// The path of its API group and version, such as `/apis/storage.k8s.io/v1`.
    const GROUP: &'static str;
    /// The resource's name in paths, such as `volumeattachments`.
    const RESOURCE: &'static str;
    /// The indexes: functions that return lookup values of an object. Positions are [`Index`]es.
    const INDEXES: &'static [IndexedBy<Self>] = &[];

    /// The metadata of the object.
    fn meta(&self) -> &Meta;

    /// Names the object in errors and logs.
    fn title(&self) -> String {
        format!("{} {}", Self::KIND, self.meta().key())
    }
}

/// Calls back with each value under which an object is indexed.
pub type IndexedBy<K> = fn(&K, &mut dyn FnMut(&str));

/// One of the indexes of a kind, by its position in [`Kind::INDEXES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index(pub usize);
