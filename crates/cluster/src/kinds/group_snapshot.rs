use serde::Deserialize;

use super::{InternedStr, Kind, Meta};

const GROUP: &str = "/apis/groupsnapshot.storage.k8s.io/v1";

/// A VolumeGroupSnapshot. Only read to report that it is not served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeGroupSnapshot {
    /// The metadata.
    pub metadata: Meta,
}

/// A VolumeGroupSnapshotContent. Only read to report that it is not served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeGroupSnapshotContent {
    /// The metadata.
    pub metadata: Meta,
    /// Its driver.
    pub spec: VolumeGroupSnapshotContentSpec,
}

/// The driver of a group snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeGroupSnapshotContentSpec {
    /// Its name.
    pub driver: InternedStr,
}

impl Kind for VolumeGroupSnapshot {
    const KIND: &'static str = "VolumeGroupSnapshot";
    const GROUP: &'static str = GROUP;
    const RESOURCE: &'static str = "volumegroupsnapshots";

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Kind for VolumeGroupSnapshotContent {
    const KIND: &'static str = "VolumeGroupSnapshotContent";
    const GROUP: &'static str = GROUP;
    const RESOURCE: &'static str = "volumegroupsnapshotcontents";

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
