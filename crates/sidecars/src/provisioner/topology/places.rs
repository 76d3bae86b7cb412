use serde::{Deserialize, Serialize};
use wharf_cluster::{CsiNode, Node, Store};
use wharf_facts::validation::{is_label_key, is_label_value};

use super::{Segment, TopologyRefusal, segment::sort};

/// The segments to choose from.
pub(in super::super) enum Places<'a> {
    /// All of the cluster.
    Cluster { driver: &'a str, csi_nodes: &'a Store<CsiNode>, nodes: &'a Store<Node> },
    /// That of one node, as the driver on it reports it.
    Own { node: &'a str, segment: &'a Segment },
}

/// The topology of a claim's first attempt. The next one uses the same, even if nodes were removed
/// or relabelled meanwhile: the driver has to get an unchanged request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in super::super) struct Memory {
    /// The selected node; with a different node it is a new request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) node: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selected: Option<Segment>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    all: Vec<Segment>,
}

impl Memory {
    /// With each segment once. Requests contain each segment once, too.
    pub(in super::super) fn condensed(mut self) -> Self {
        sort(&mut self.all);
        self
    }

    /// The part that node labels can contain, or else only the node. The driver gets no text that
    /// was made up in a note.
    pub(in super::super) fn if_labels(self) -> Self {
        let mut segments = self.selected.iter().chain(&self.all);
        let are_labels = self.keys.iter().all(|key| is_label_key(key))
            && segments.all(|segment| {
                segment.iter().all(|(key, value)| self.keys.contains(key) && is_label_value(value))
            });
        match are_labels {
            true => self,
            false => Self { node: self.node, ..Self::default() },
        }
    }

    /// Without the list of all segments, which may be long.
    pub(in super::super) fn without_all(mut self) -> Self {
        self.all.clear();
        self
    }

    /// Drops the topology for another node.
    pub(super) fn turn_to(&mut self, node: Option<&str>) {
        if self.node.as_deref() != node {
            *self = Self { node: node.map(str::to_owned), ..Self::default() };
        }
    }
}

impl Places<'_> {
    /// The part of a memory that is safe whoever wrote it: the node, and segments that nodes have.
    /// An editor of the claim may edit the note.
    pub(in super::super) fn known_part(&self, memory: Memory) -> Memory {
        let keys = match &memory.node {
            Some(node) => self.keys_of_node(node).unwrap_or_default(),
            None => self.keys_of_any(),
        };
        let places = self.with_keys(&keys);
        let mut noted = memory.selected.iter().chain(&memory.all);
        let is_known = keys == memory.keys && noted.all(|segment| places.contains(segment));
        match is_known {
            true => memory,
            false => Memory { node: memory.node, ..Memory::default() },
        }
    }

    /// The segment of a node.
    pub(super) fn of_node(
        &self,
        name: &str,
        memory: &mut Memory,
    ) -> Result<Segment, TopologyRefusal> {
        if memory.keys.is_empty() {
            memory.keys = self.keys_of_node(name)?;
        }
        if memory.keys.is_empty() {
            return Err(TopologyRefusal::NoKeys(name.to_owned()));
        }
        if let Some(known) = &memory.selected {
            return Ok(known.clone());
        }
        let segment = self.labels_of_node(name, &memory.keys).ok_or_else(|| {
            TopologyRefusal::NoLabels { node: name.to_owned(), keys: memory.keys.clone() }
        })?;
        memory.selected = Some(segment.clone());
        Ok(segment)
    }

    /// All segments, by known keys or those of some node.
    pub(super) fn all(&self, memory: &mut Memory) -> Result<Vec<Segment>, TopologyRefusal> {
        if !memory.all.is_empty() {
            return Ok(memory.all.clone());
        }
        if memory.keys.is_empty() {
            memory.keys = self.keys_of_any();
        }
        if memory.keys.is_empty() {
            return Err(TopologyRefusal::Nowhere);
        }
        let places = self.with_keys(&memory.keys);
        if places.is_empty() {
            return Err(TopologyRefusal::KeysNowhere(memory.keys.clone()));
        }
        memory.all.clone_from(&places);
        Ok(places)
    }

    fn keys_of_node(&self, name: &str) -> Result<Vec<String>, TopologyRefusal> {
        let unknown = || TopologyRefusal::UnknownNode(name.to_owned());
        match self {
            Self::Cluster { driver, csi_nodes, .. } => {
                let node = csi_nodes.get(name).ok_or_else(unknown)?;
                Ok(node.topology_keys(driver).to_vec())
            }
            Self::Own { node, segment } if *node == name => Ok(segment.keys().cloned().collect()),
            Self::Own { .. } => Err(unknown()),
        }
    }

    fn keys_of_any(&self) -> Vec<String> {
        match self {
            Self::Cluster { driver, csi_nodes, .. } => {
                let nodes = csi_nodes.all();
                let keys = nodes.iter().map(|node| node.topology_keys(driver));
                keys.into_iter().find(|keys| !keys.is_empty()).unwrap_or_default().to_vec()
            }
            Self::Own { segment, .. } => segment.keys().cloned().collect(),
        }
    }

    fn labels_of_node(&self, name: &str, keys: &[String]) -> Option<Segment> {
        match self {
            Self::Cluster { nodes, .. } => values(&*nodes.get(name)?, keys),
            Self::Own { segment, .. } => Some((*segment).clone()),
        }
    }

    fn with_keys(&self, keys: &[String]) -> Vec<Segment> {
        match self {
            Self::Cluster { nodes, .. } => {
                nodes.all().iter().filter_map(|node| values(node, keys)).collect()
            }
            Self::Own { segment, .. } => vec![(*segment).clone()],
        }
    }
}

/// The node's values for all of the keys.
fn values(node: &Node, keys: &[String]) -> Option<Segment> {
    let labels = &node.metadata.labels;
    keys.iter().map(|key| Some((key.clone(), labels.get(key)?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_labels_of_nodes_are_places() {
        let memory = |memory: Value| -> Memory { serde_json::from_value(memory).unwrap() };
        let kept =
            |segments: &Value| memory(segments.clone()).if_labels() == memory(segments.clone());
        let zone = |zone: &str| json!({ "node": "n", "keys": ["example.com/zone"], "selected": { "example.com/zone": zone } });
        for good in
            [zone("a"), zone(""), json!({}), json!({ "keys": ["zone"], "all": [{ "zone": "a" }] })]
        {
            assert!(kept(&good), "{good}");
        }
        for bad in [
            zone("a b"),
            zone("a;rm"),
            zone("../a"),
            json!({ "keys": ["a key"] }),
            json!({ "keys": ["zone"], "all": [{ "other": "a" }] }),
        ] {
            assert!(!kept(&bad), "{bad}");
        }
        assert_eq!(memory(zone("a b")).if_labels(), memory(json!({ "node": "n" })));
    }
}
