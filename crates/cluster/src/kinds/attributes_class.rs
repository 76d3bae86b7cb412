use serde::Deserialize;

use super::{Attributes, InternedStr, Kind, Meta};

/// A VolumeAttributesClass: attributes that a volume can be given while it is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttributesClass {
    /// The metadata.
    pub metadata: Meta,
    /// The driver of the class.
    pub driver_name: InternedStr,
    /// The parameters for the driver.
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
