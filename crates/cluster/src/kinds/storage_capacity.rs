use serde::Deserialize;

use super::{Attributes, Index, IndexedBy, Kind, Meta, Size};

/// A CSIStorageCapacity: the free capacity of a StorageClass in a topology segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Document")]
pub struct CsiStorageCapacity {
    /// The metadata.
    pub metadata: Meta,
    /// The owners.
    pub owners: Vec<Owner>,
    /// The StorageClass.
    pub storage_class_name: String,
    /// The topology segment; no node if it is missing.
    pub node_topology: Option<LabelSelector>,
    /// The free capacity.
    pub capacity: Option<Size>,
    /// The largest volume that can be created.
    pub maximum_volume_size: Option<Size>,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Owner {
    /// The owner's UID.
    pub uid: String,
    /// Whether the owner is the managing controller.
    pub controller: bool,
}

/// A label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// The labels and values to match.
    pub match_labels: Attributes,
}

/// The object as served by the API. Owners are part of the metadata, but no other kind reads them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    metadata: OwnedMeta,
    storage_class_name: String,
    node_topology: Option<LabelSelector>,
    capacity: Option<Size>,
    maximum_volume_size: Option<Size>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnedMeta {
    #[serde(flatten)]
    meta: Meta,
    owner_references: Vec<Owner>,
}

impl From<Document> for CsiStorageCapacity {
    fn from(document: Document) -> Self {
        Self {
            metadata: document.metadata.meta,
            owners: document.metadata.owner_references,
            storage_class_name: document.storage_class_name,
            node_topology: document.node_topology,
            capacity: document.capacity,
            maximum_volume_size: document.maximum_volume_size,
        }
    }
}

impl CsiStorageCapacity {
    /// Index by class and segment, as [`CsiStorageCapacity::key`] writes them.
    pub const BY_PLACE: Index = Index(0);

    /// A class and a segment, as one text.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_read_with_its_owners() {
        let read = |metadata| -> CsiStorageCapacity {
            let document =
                json!({ "metadata": metadata, "storageClassName": "fast", "capacity": "1Gi" });
            serde_json::from_str(&document.to_string()).unwrap()
        };
        let object = read(json!({
            "name": "csisc-1", "namespace": "ns", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"], "labels": { "l": "1" },
            "managedFields": [{ "manager": "m" }],
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1", "controller": true },
                { "apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "2" },
            ],
        }));
        let meta = &object.metadata;
        assert_eq!((&*meta.key(), meta.version()), ("ns/csisc-1", Some(7)));
        assert!(meta.deleting && meta.has_finalizer("f"));
        assert_eq!(meta.labels.get("l"), Some("1"));
        let owner = |uid: &str, controller| Owner { uid: uid.to_owned(), controller };
        assert_eq!(object.owners, [owner("1", true), owner("2", false)]);
        assert_eq!(object.capacity, Some(Size(1 << 30)));
        assert_eq!(read(json!({ "name": "csisc-2" })).owners, []);
    }
}
