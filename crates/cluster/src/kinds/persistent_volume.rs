use serde::Deserialize;

use super::{Attributes, Kind, Meta};

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// Its metadata.
    pub metadata: Meta,
    /// What it is.
    pub spec: PersistentVolumeSpec,
}

/// What a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// The volume in a CSI driver; `None` for one of an in-tree plugin.
    pub csi: Option<CsiVolumeSource>,
    /// How it may be used.
    pub access_modes: Box<[String]>,
    /// Options for its mount.
    pub mount_options: Box<[String]>,
    /// `Filesystem`, which is the default, or `Block`.
    pub volume_mode: Option<String>,
}

/// A volume of a CSI driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiVolumeSource {
    /// The driver's name.
    pub driver: String,
    /// The driver's name for the volume.
    pub volume_handle: String,
    /// Nobody may write to it.
    pub read_only: bool,
    /// The filesystem; empty leaves the choice to others.
    pub fs_type: String,
    /// What the driver said about the volume when it was made.
    pub volume_attributes: Attributes,
    /// The secret for attaching and detaching.
    pub controller_publish_secret_ref: Option<Box<SecretReference>>,
}

/// Where a secret is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SecretReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl PersistentVolumeSpec {
    /// Whether it is used as a device and has no filesystem.
    pub fn is_block(&self) -> bool {
        self.volume_mode.as_deref() == Some("Block")
    }
}

impl Kind for PersistentVolume {
    const KIND: &'static str = "PersistentVolume";
    const GROUP: &'static str = "/api/v1";
    const RESOURCE: &'static str = "persistentvolumes";

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
