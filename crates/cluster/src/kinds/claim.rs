use serde::Deserialize;
use wharf_facts::annotation;

use super::{Index, IndexedBy, InternedStr, Kind, Meta, Size, Sizes};

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    /// The metadata.
    pub metadata: Meta,
    /// The spec.
    pub spec: PersistentVolumeClaimSpec,
    /// The status.
    pub status: PersistentVolumeClaimStatus,
}

/// The requested volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// Access modes.
    pub access_modes: Box<[InternedStr]>,
    /// The StorageClass; empty for none.
    pub storage_class_name: Option<InternedStr>,
    /// The name of the PersistentVolume that the claim is bound to, or is to be bound to.
    pub volume_name: Option<String>,
    /// `Filesystem`, which is the default, or `Block`.
    pub volume_mode: Option<InternedStr>,
    /// The requested size.
    pub resources: Requests,
    /// Whether volumes are selected by their labels.
    #[serde(rename = "selector", deserialize_with = "super::meta::presence")]
    pub selects: bool,
    /// The data source.
    pub data_source: Option<Box<DataSource>>,
    /// The data source, in the newer field, which takes any kind.
    pub data_source_ref: Option<Box<DataSource>>,
    /// The requested VolumeAttributesClass.
    pub volume_attributes_class_name: Option<String>,
}

/// The requested resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// The lower bound.
    pub requests: Sizes,
}

/// A data source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataSource {
    /// The API group of the kind; none for the core group.
    pub api_group: Option<String>,
    /// The kind.
    pub kind: String,
    /// The name, in the claim's namespace unless another is given.
    pub name: String,
    /// A namespace other than the claim's.
    pub namespace: Option<String>,
}

/// The status of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    pub phase: InternedStr,
    /// The size of the volume, as its user sees it.
    pub capacity: Sizes,
    /// The size of an expansion in progress.
    pub allocated_resources: Sizes,
    /// The state of an expansion.
    pub allocated_resource_statuses: ResizeStatus,
    /// Conditions.
    pub conditions: Vec<ClaimCondition>,
    /// The VolumeAttributesClass that the volume has.
    pub current_volume_attributes_class_name: Option<String>,
    /// The state of a change of the VolumeAttributesClass.
    pub modify_volume_status: Option<Box<ModifyStatus>>,
}

/// The states of expansions, by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResizeStatus {
    /// The state for storage, such as `ControllerResizeInProgress`.
    pub storage: Option<String>,
}

/// A condition of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimCondition {
    /// The type, such as `Resizing`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// The last transition, as the API wrote it.
    pub last_transition_time: Option<String>,
}

/// The state of a change of the VolumeAttributesClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModifyStatus {
    /// The target class.
    pub target_volume_attributes_class_name: String,
    /// `Pending`, `InProgress` or `Infeasible`.
    pub status: String,
}

impl PersistentVolumeClaim {
    /// Index by the name of the bound volume.
    pub const BY_VOLUME: Index = Index(0);
    /// Index by the data source, as [`DataSource::key`] writes it.
    pub const BY_SOURCE: Index = Index(1);

    /// The data source, from whichever field has one.
    pub fn source(&self) -> Option<&DataSource> {
        self.spec.data_source.as_deref().or(self.spec.data_source_ref.as_deref())
    }

    /// Whether the claim names a volume.
    pub fn is_bound(&self) -> bool {
        self.spec.volume_name.as_deref().is_some_and(|volume| !volume.is_empty())
    }

    /// The name of the StorageClass.
    pub fn class(&self) -> Option<&str> {
        let older = self.metadata.annotations.get(annotation::STORAGE_CLASS_BETA);
        older.or(self.spec.storage_class_name.as_deref())
    }

    /// The requested size.
    pub fn requested(&self) -> Option<Size> {
        self.spec.resources.requests.storage
    }

    /// Whether the volume is a block device without a filesystem.
    pub fn is_block(&self) -> bool {
        self.spec.volume_mode.as_deref() == Some("Block")
    }
}

impl DataSource {
    /// The source of a claim in `namespace`, as one text: `Kind/namespace/name`.
    pub fn key(&self, namespace: &str) -> String {
        let namespace = self.namespace.as_deref().unwrap_or(namespace);
        format!("{}/{namespace}/{}", self.kind, self.name)
    }
}

impl Kind for PersistentVolumeClaim {
    const KIND: &'static str = "PersistentVolumeClaim";
    const GROUP: &'static str = "/api/v1";
    const RESOURCE: &'static str = "persistentvolumeclaims";
    const INDEXES: &'static [IndexedBy<Self>] = &[
        |claim, found| {
            if let Some(volume) = claim.spec.volume_name.as_deref().filter(|it| !it.is_empty()) {
                found(volume);
            }
        },
        |claim, found| {
            if let Some(source) = claim.source() {
                found(&source.key(claim.metadata.namespace.as_deref().unwrap_or_default()));
            }
        },
    ];

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_found_by_its_volume_and_its_source() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": "c", "namespace": "n" },
            "spec": {
                "volumeName": "pv",
                "selector": {},
                "resources": { "requests": { "storage": "1500m" } },
                "dataSource": { "kind": "VolumeSnapshot", "name": "s" },
            },
            "status": { "capacity": { "storage": "1Gi" } },
        }))
        .unwrap();
        let mut found = Vec::new();
        for index in PersistentVolumeClaim::INDEXES {
            index(&claim, &mut |value| found.push(value.to_owned()));
        }
        assert_eq!(found, ["pv", "VolumeSnapshot/n/s"]);
        assert_eq!(claim.requested(), Some(Size(2)));
        assert_eq!(claim.status.capacity.storage, Some(Size(1 << 30)));
        assert!(claim.spec.selects);
    }
}
