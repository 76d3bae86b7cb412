use serde::Deserialize;
use wharf_facts::annotation;

use super::{Index, IndexedBy, Kind, Meta, Size, Sizes, Word};

/// The wish for a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    /// Its metadata.
    pub metadata: Meta,
    /// What is wished for.
    pub spec: PersistentVolumeClaimSpec,
    /// What has become of it.
    pub status: PersistentVolumeClaimStatus,
}

/// What volume is wished for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// How it is to be used.
    pub access_modes: Box<[Word]>,
    /// Its class; the empty one stands for none.
    pub storage_class_name: Option<Word>,
    /// The volume that it is bound to.
    pub volume_name: Option<String>,
    /// `Filesystem`, which is the default, or `Block`.
    pub volume_mode: Option<Word>,
    /// How large it is to be.
    pub resources: Requests,
    /// Whether volumes are selected by their labels.
    #[serde(rename = "selector", deserialize_with = "super::meta::presence")]
    pub selects: bool,
    /// Where its first contents come from.
    pub data_source: Option<Box<DataSource>>,
    /// The same, in the newer field, which takes any kind.
    pub data_source_ref: Option<Box<DataSource>>,
    /// Which attributes its volume is to have.
    pub volume_attributes_class_name: Option<String>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// The least that is enough.
    pub requests: Sizes,
}

/// Where first contents come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataSource {
    /// The API group of the kind; none for the core group.
    pub api_group: Option<String>,
    /// The kind.
    pub kind: String,
    /// The name, in the namespace of the claim if no other is given.
    pub name: String,
    /// Another namespace than the claim's.
    pub namespace: Option<String>,
}

/// What has become of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    pub phase: Word,
    /// How large the volume is, as its user sees it.
    pub capacity: Sizes,
    /// How large it is being made.
    pub allocated_resources: Sizes,
    /// How far that has come.
    pub allocated_resource_statuses: ResizeStatus,
    /// What is under way or went wrong.
    pub conditions: Vec<ClaimCondition>,
    /// Which attributes the volume has.
    pub current_volume_attributes_class_name: Option<String>,
    /// Which attributes it is being given.
    pub modify_volume_status: Option<Box<ModifyStatus>>,
}

/// How far a growth has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResizeStatus {
    /// Such as `ControllerResizeInProgress`.
    pub storage: Option<String>,
}

/// Something that holds for a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimCondition {
    /// What it is about, such as `Resizing`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in words for people.
    pub message: String,
    /// Since when, as the API wrote it.
    pub last_transition_time: Option<String>,
}

/// A change of attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModifyStatus {
    /// The class that it goes to.
    pub target_volume_attributes_class_name: String,
    /// `Pending`, `InProgress` or `Infeasible`.
    pub status: String,
}

impl PersistentVolumeClaim {
    /// By the name of the volume that it is bound to.
    pub const BY_VOLUME: Index = Index(0);
    /// By its source, as [`DataSource::key`] writes it.
    pub const BY_SOURCE: Index = Index(1);

    /// Where its first contents come from, in whichever field that is.
    pub fn source(&self) -> Option<&DataSource> {
        self.spec.data_source.as_deref().or(self.spec.data_source_ref.as_deref())
    }

    /// Whether it has a volume, or was given one that it is to have.
    pub fn is_bound(&self) -> bool {
        self.spec.volume_name.as_deref().is_some_and(|volume| !volume.is_empty())
    }

    /// Its class.
    pub fn class(&self) -> Option<&str> {
        let older = self.metadata.annotations.get(annotation::STORAGE_CLASS_BETA);
        older.or(self.spec.storage_class_name.as_deref())
    }

    /// How large it is to be.
    pub fn requested(&self) -> Option<Size> {
        self.spec.resources.requests.storage
    }

    /// Whether it is used as a device and has no filesystem.
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
