use serde::Deserialize;

use super::{Attributes, Kind, Meta};

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// The metadata.
    pub metadata: Meta,
    /// The provisioner: the name of a driver.
    pub provisioner: String,
    /// The parameters for the driver.
    pub parameters: Attributes,
    /// The reclaim policy: `Delete`, which is the default, or `Retain`.
    pub reclaim_policy: Option<String>,
    /// Mount options.
    pub mount_options: Box<[String]>,
    /// `Immediate`, which is the default, or `WaitForFirstConsumer`.
    pub volume_binding_mode: Option<String>,
    /// The allowed topologies; all if empty.
    pub allowed_topologies: Vec<TopologyTerm>,
}

/// Requirements that all have to match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyTerm {
    /// Each of them.
    pub match_label_expressions: Vec<TopologyRequirement>,
}

/// A topology key that has one of these values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TopologyRequirement {
    /// The key.
    pub key: String,
    /// The values.
    #[serde(deserialize_with = "super::meta::list")]
    pub values: Vec<String>,
}

impl StorageClass {
    /// Whether a volume is created only once the scheduler has chosen a node for its first
    /// consumer.
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
