use serde::Deserialize;

use super::{Attributes, Index, IndexedBy, Kind, Meta, Size, Word};

const GROUP: &str = "/apis/snapshot.storage.k8s.io/v1";

/// The wish for a snapshot of a claim, or for the use of one that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeSnapshot {
    /// Its metadata.
    pub metadata: Meta,
    /// What is wished for.
    pub spec: VolumeSnapshotSpec,
    /// What has become of it; nobody has looked at it where there is none.
    pub status: Option<Box<VolumeSnapshotStatus>>,
}

/// What snapshot is wished for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotSpec {
    /// Of what.
    pub source: VolumeSnapshotSource,
    /// Its class; none asks for the default.
    pub volume_snapshot_class_name: Option<Word>,
}

/// What a snapshot is of: exactly one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotSource {
    /// A claim, of whose volume one is to be taken.
    pub persistent_volume_claim_name: Option<String>,
    /// A content that is there.
    pub volume_snapshot_content_name: Option<String>,
}

/// What has become of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    /// The content that it is bound to.
    pub bound_volume_snapshot_content_name: Option<String>,
    /// When it was taken, as the API writes it.
    pub creation_time: Option<String>,
    /// Whether volumes can be made of it.
    pub ready_to_use: Option<bool>,
    /// The least size of such a volume.
    pub restore_size: Option<Size>,
    /// What went wrong last.
    pub error: Option<SnapshotError>,
}

/// What went wrong with a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SnapshotError {
    /// When, as the API writes it.
    pub time: Option<String>,
    /// What.
    pub message: Option<String>,
}

/// A snapshot in a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeSnapshotContent {
    /// Its metadata.
    pub metadata: Meta,
    /// What it is.
    pub spec: VolumeSnapshotContentSpec,
    /// What has become of it; nobody has looked at it where there is none.
    pub status: Option<Box<VolumeSnapshotContentStatus>>,
}

/// What a snapshot in a driver is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContentSpec {
    /// The VolumeSnapshot that it belongs to.
    pub volume_snapshot_ref: SnapshotReference,
    /// What becomes of it without that: `Delete` or `Retain`.
    pub deletion_policy: Word,
    /// The driver.
    pub driver: Word,
    /// Its class.
    pub volume_snapshot_class_name: Option<Word>,
    /// Of what it is.
    pub source: VolumeSnapshotContentSource,
    /// `Filesystem` or `Block`, as the volume was.
    pub source_volume_mode: Option<Word>,
}

/// Which VolumeSnapshot a content belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SnapshotReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Tells it from others that have had its name; empty until it is bound.
    pub uid: String,
}

/// What a snapshot in a driver is of: exactly one of the first two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContentSource {
    /// The driver's name for the volume that one is to be taken of.
    pub volume_handle: Option<String>,
    /// The driver's name for a snapshot that is there.
    pub snapshot_handle: Option<String>,
}

/// What has become of a snapshot in a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContentStatus {
    /// The driver's name for it.
    pub snapshot_handle: Option<String>,
    /// When it was taken, in nanoseconds since 1970.
    pub creation_time: Option<i64>,
    /// The least size, in bytes, of a volume that is made of it.
    pub restore_size: Option<i64>,
    /// Whether volumes can be made of it.
    pub ready_to_use: Option<bool>,
    /// What went wrong last.
    pub error: Option<SnapshotError>,
    /// The group that it was taken with, in the driver's words.
    pub volume_group_snapshot_handle: Option<String>,
}

/// How snapshots of a class are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotClass {
    /// Its metadata.
    pub metadata: Meta,
    /// The driver that takes them.
    pub driver: Word,
    /// What the driver is told.
    pub parameters: Attributes,
    /// What becomes of a content without its snapshot: `Delete` or `Retain`.
    pub deletion_policy: Word,
}

impl VolumeSnapshot {
    /// By its claim, as `namespace/name`.
    pub const BY_CLAIM: Index = Index(0);

    /// The content that it is bound to.
    pub fn bound_content(&self) -> Option<&str> {
        let name = self.status.as_ref()?.bound_volume_snapshot_content_name.as_deref();
        name.filter(|name| !name.is_empty())
    }

    /// Whether volumes can be made of it.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }
}

impl VolumeSnapshotContent {
    /// By its snapshot, as `namespace/name`.
    pub const BY_SNAPSHOT: Index = Index(0);

    /// Whether volumes can be made of it.
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
