use serde::Deserialize;

use super::{Kind, Meta};

/// The drivers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    /// Its name is the node's.
    pub metadata: Meta,
    /// The drivers.
    pub spec: CsiNodeSpec,
}

/// The drivers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// Each driver once.
    pub drivers: Vec<CsiNodeDriver>,
}

/// A driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CsiNodeDriver {
    /// The driver's name.
    pub name: String,
    /// The node's name in the driver's own words.
    #[serde(rename = "nodeID")]
    pub node_id: String,
}

impl CsiNode {
    /// The node's name in the words of `driver`, if that is there.
    pub fn node_id(&self, driver: &str) -> Option<&str> {
        let entry = self.spec.drivers.iter().find(|own| own.name == driver)?;
        Some(&entry.node_id)
    }
}

impl Kind for CsiNode {
    const KIND: &'static str = "CSINode";
    const GROUP: &'static str = "/apis/storage.k8s.io/v1";
    const RESOURCE: &'static str = "csinodes";

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
