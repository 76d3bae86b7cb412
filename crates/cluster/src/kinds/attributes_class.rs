use serde::Deserialize;

use super::{Attributes, Kind, Meta, Word};

/// Attributes that a volume can be given while it is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttributesClass {
    /// Its metadata.
    pub metadata: Meta,
    /// The driver that knows them.
    pub driver_name: Word,
    /// What the driver is told.
    pub parameters: Attributes,
}

impl Kind for VolumeAttributesClass {
    const KIND: &'static str = "VolumeAttributesClass";
    const GROUP: &'static str = "/apis/storage.k8s.io/v1";
    const RESOURCE: &'static str = "volumeattributesclasses";

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
