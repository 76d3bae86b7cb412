use serde::Deserialize;

use super::{Attributes, Kind, Meta};

/// How volumes of a class are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Its metadata.
    pub metadata: Meta,
    /// The driver that makes them.
    pub provisioner: String,
    /// What the driver is told.
    pub parameters: Attributes,
    /// What becomes of a volume without its claim: `Delete`, which is the default, or `Retain`.
    pub reclaim_policy: Option<String>,
    /// Options for their mounts.
    pub mount_options: Box<[String]>,
    /// `Immediate`, which is the default, or `WaitForFirstConsumer`.
    pub volume_binding_mode: Option<String>,
    /// Where they may be made; nothing is everywhere.
    pub allowed_topologies: Vec<TopologyTerm>,
}

/// Requirements that all have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyTerm {
    /// Each of them.
    pub match_label_expressions: Vec<TopologyRequirement>,
}

/// A label that a place has to have, with one of these values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TopologyRequirement {
    /// The label.
    pub key: String,
    /// The values.
    #[serde(deserialize_with = "super::meta::list")]
    pub values: Vec<String>,
}

impl StorageClass {
    /// Whether a volume is made only when it is known where its first user runs.
    pub fn waits_for_consumer(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }
}

impl Kind for StorageClass {
    const KIND: &'static str = "StorageClass";
    const GROUP: &'static str = "/apis/storage.k8s.io/v1";
    const RESOURCE: &'static str = "storageclasses";

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
