use serde::Deserialize;

use super::{Kind, Meta};

/// A CSINode: the drivers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    /// The metadata. Its name is the node's.
    pub metadata: Meta,
    /// The drivers.
    pub spec: CsiNodeSpec,
}

/// The drivers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// The drivers, each once.
    #[serde(deserialize_with = "super::meta::list")]
    pub drivers: Vec<CsiNodeDriver>,
}

/// A driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CsiNodeDriver {
    /// The driver's name.
    pub name: String,
    /// The driver's ID of the node.
    #[serde(rename = "nodeID")]
    pub node_id: String,
    /// The keys of node labels that form the driver's topology.
    #[serde(rename = "topologyKeys")]
    pub topology_keys: Option<Box<[String]>>,
}

impl CsiNode {
    /// The ID of the node for `driver`, if registered.
    pub fn node_id(&self, driver: &str) -> Option<&str> {
        Some(&self.driver(driver)?.node_id)
    }

    /// The topology keys of `driver`; empty if it is not registered.
    pub fn topology_keys(&self, driver: &str) -> &[String] {
        self.driver(driver).and_then(|entry| entry.topology_keys.as_deref()).unwrap_or_default()
    }

    fn driver(&self, name: &str) -> Option<&CsiNodeDriver> {
        self.spec.drivers.iter().find(|own| own.name == name)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_without_drivers_is_one() {
        let node = json!({ "metadata": { "name": "n" }, "spec": { "drivers": null } });
        let node: CsiNode = serde_json::from_value(node).unwrap();
        assert_eq!((node.metadata.name.as_str(), node.spec.drivers.len()), ("n", 0));
        let keyless = json!({ "drivers": [{ "name": "d", "nodeID": "i", "topologyKeys": null }] });
        let spec: CsiNodeSpec = serde_json::from_value(keyless).unwrap();
        assert_eq!(spec.drivers[0].topology_keys, None);
    }
}
