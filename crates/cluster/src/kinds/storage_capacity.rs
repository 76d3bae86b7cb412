use serde::Deserialize;

use super::{Attributes, Index, IndexedBy, Kind, Meta, Size};

/// How much a driver can still make of one class in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiStorageCapacity {
    /// Its metadata.
    pub metadata: Meta,
    /// The class.
    pub storage_class_name: String,
    /// The place; `None` is nowhere.
    pub node_topology: Option<LabelSelector>,
    /// All that is left.
    pub capacity: Option<Size>,
    /// The largest volume that can be made.
    pub maximum_volume_size: Option<Size>,
}

/// Labels that nodes have to have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Each of them, with its value.
    pub match_labels: Attributes,
}

impl CsiStorageCapacity {
    /// By class and place, as [`CsiStorageCapacity::key`] writes them.
    pub const BY_PLACE: Index = Index(0);

    /// A class and a place, as one text.
    pub fn key<'a>(class: &str, place: impl Iterator<Item = (&'a str, &'a str)>) -> String {
        let place: Vec<String> = place.map(|(label, value)| format!("{label}={value}")).collect();
        format!("{class}/{}", place.join(","))
    }
}

impl Kind for CsiStorageCapacity {
    const KIND: &'static str = "CSIStorageCapacity";
    const GROUP: &'static str = "/apis/storage.k8s.io/v1";
    const RESOURCE: &'static str = "csistoragecapacities";
    const INDEXES: &'static [IndexedBy<Self>] = &[|capacity, found| {
        if let Some(place) = &capacity.node_topology {
            found(&Self::key(&capacity.storage_class_name, place.match_labels.iter()));
        }
    }];

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
