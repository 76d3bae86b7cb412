use serde::Deserialize;

use super::{Kind, Meta, Word};

const GROUP: &str = "/apis/groupsnapshot.storage.k8s.io/v1";

/// The wish for snapshots of several claims at one moment. Only read to say that it is not served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeGroupSnapshot {
    /// Its metadata.
    pub metadata: Meta,
}

/// A group snapshot in a driver. Only read to say that it is not served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeGroupSnapshotContent {
    /// Its metadata.
    pub metadata: Meta,
    /// Its driver.
    pub spec: VolumeGroupSnapshotContentSpec,
}

/// The driver of a group snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeGroupSnapshotContentSpec {
    /// Its name.
    pub driver: Word,
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
