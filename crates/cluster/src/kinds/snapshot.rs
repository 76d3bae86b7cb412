use serde::Deserialize;

use super::{Attributes, Index, IndexedBy, InternedStr, Kind, Meta, Size};

const GROUP: &str = "/apis/snapshot.storage.k8s.io/v1";

/// A VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeSnapshot {
    /// The metadata.
    pub metadata: Meta,
    /// The spec.
    pub spec: VolumeSnapshotSpec,
    /// The status; `None` if no controller has written it.
    pub status: Option<Box<VolumeSnapshotStatus>>,
}

/// The spec of a VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotSpec {
    /// The source.
    pub source: VolumeSnapshotSource,
    /// The VolumeSnapshotClass; `None` for the default.
    pub volume_snapshot_class_name: Option<InternedStr>,
}

/// The source of a VolumeSnapshot: exactly one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotSource {
    /// A claim whose volume is to be snapshot.
    pub persistent_volume_claim_name: Option<String>,
    /// An existing VolumeSnapshotContent.
    pub volume_snapshot_content_name: Option<String>,
}

/// The status of a VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    /// The bound VolumeSnapshotContent.
    pub bound_volume_snapshot_content_name: Option<String>,
    /// When the snapshot was taken, as the API writes it.
    pub creation_time: Option<String>,
    /// Whether volumes can be restored from it.
    pub ready_to_use: Option<bool>,
    /// The minimum size of a restored volume.
    pub restore_size: Option<Size>,
    /// The last error.
    pub error: Option<SnapshotError>,
}

/// An error of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SnapshotError {
    /// When it occurred, as the API writes it.
    pub time: Option<String>,
    /// The message.
    pub message: Option<String>,
}

/// A VolumeSnapshotContent: a snapshot in a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeSnapshotContent {
    /// The metadata.
    pub metadata: Meta,
    /// The spec.
    pub spec: VolumeSnapshotContentSpec,
    /// The status; `None` if no controller has written it.
    pub status: Option<Box<VolumeSnapshotContentStatus>>,
}

/// The spec of a VolumeSnapshotContent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContentSpec {
    /// The VolumeSnapshot that it belongs to.
    pub volume_snapshot_ref: SnapshotReference,
    /// The deletion policy: `Delete` or `Retain`.
    pub deletion_policy: InternedStr,
    /// The driver.
    pub driver: InternedStr,
    /// The VolumeSnapshotClass.
    pub volume_snapshot_class_name: Option<InternedStr>,
    /// The source.
    pub source: VolumeSnapshotContentSource,
    /// The volume mode of the source: `Filesystem` or `Block`.
    pub source_volume_mode: Option<InternedStr>,
}

/// A reference to the VolumeSnapshot of a content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SnapshotReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The UID; empty until the content is bound.
    pub uid: String,
}

/// The source of a content: exactly one of the first two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContentSource {
    /// The driver's ID of the volume to be snapshot.
    pub volume_handle: Option<String>,
    /// The driver's ID of an existing snapshot.
    pub snapshot_handle: Option<String>,
}

/// The status of a VolumeSnapshotContent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContentStatus {
    /// The driver's ID of the snapshot.
    pub snapshot_handle: Option<String>,
    /// When the snapshot was taken, in nanoseconds since 1970.
    pub creation_time: Option<i64>,
    /// The minimum size of a restored volume, in bytes.
    pub restore_size: Option<i64>,
    /// Whether volumes can be restored from it.
    pub ready_to_use: Option<bool>,
    /// The last error.
    pub error: Option<SnapshotError>,
    /// The driver's ID of the group that the snapshot belongs to.
    pub volume_group_snapshot_handle: Option<String>,
}

/// A VolumeSnapshotClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotClass {
    /// The metadata.
    pub metadata: Meta,
    /// The driver of the class.
    pub driver: InternedStr,
    /// The parameters for the driver.
    pub parameters: Attributes,
    /// The deletion policy: `Delete` or `Retain`.
    pub deletion_policy: InternedStr,
}

impl VolumeSnapshot {
    /// Index by the claim, as `namespace/name`.
    pub const BY_CLAIM: Index = Index(0);

    /// The name of the bound content.
    pub fn bound_content(&self) -> Option<&str> {
        let name = self.status.as_ref()?.bound_volume_snapshot_content_name.as_deref();
        name.filter(|name| !name.is_empty())
    }

    /// Whether volumes can be restored from it.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }
}

impl VolumeSnapshotContent {
    /// Index by the snapshot, as `namespace/name`.
    pub const BY_SNAPSHOT: Index = Index(0);

    /// Whether volumes can be restored from it.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }
}

impl Kind for VolumeSnapshot {
    const KIND: &'static str = "VolumeSnapshot";
    const GROUP: &'static str = GROUP;
    const RESOURCE: &'static str = "volumesnapshots";
    const INDEXES: &'static [IndexedBy<Self>] = &[|snapshot, found| {
        if let Some(claim) = &snapshot.spec.source.persistent_volume_claim_name {
            let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
            found(&format!("{namespace}/{claim}"));
        }
    }];

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Kind for VolumeSnapshotContent {
    const KIND: &'static str = "VolumeSnapshotContent";
    const GROUP: &'static str = GROUP;
    const RESOURCE: &'static str = "volumesnapshotcontents";
    const INDEXES: &'static [IndexedBy<Self>] = &[|content, found| {
        let SnapshotReference { namespace, name, .. } = &content.spec.volume_snapshot_ref;
        found(&format!("{namespace}/{name}"));
    }];

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Kind for VolumeSnapshotClass {
    const KIND: &'static str = "VolumeSnapshotClass";
    const GROUP: &'static str = GROUP;
    const RESOURCE: &'static str = "volumesnapshotclasses";

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
