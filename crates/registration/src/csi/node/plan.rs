//! Computes the writes from the wanted drivers and the objects in the API. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use wharf_csi::NodeInfo;
use wharf_facts::annotation;

/// The drivers that the API should show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Name and node information, in order of registration: the first driver to claim a topology
    /// label keeps it.
    pub drivers: Vec<(String, NodeInfo)>,
    /// Drivers whose information was written before. They are in use: a label that someone changed
    /// since does not remove them.
    pub written: BTreeSet<String>,
    /// Whether to keep entries of unlisted drivers. True after a start, while their drivers may
    /// still register.
    pub keep_unknown: bool,
}

/// Reasons why drivers are not written, by name.
pub type Refusals = BTreeMap<String, String>;

/// The write to the Node object.
#[derive(Debug, Default, PartialEq)]
pub struct NodePlan {
    /// A merge patch of metadata, if anything differs.
    pub patch: Option<Value>,
    /// New drivers whose topology contradicts labels that others set.
    pub refused: Refusals,
    /// Drivers written before whose topology contradicts such labels. They are kept, and so are the
    /// labels.
    pub contradicted: Refusals,
}

/// The write to the CSINode object.
#[derive(Debug, PartialEq)]
pub enum CsiNodePlan {
    /// Nothing differs.
    Keep,
    /// The object does not exist.
    Create(Value),
    /// The object belongs to a Node that no longer exists: delete it by its UID, then create a new
    /// one.
    Delete,
    /// The entries differ.
    Replace {
        /// The object with the wanted entries.
        object: Value,
        /// The object without the entries that change, since the API server rejects changes of an
        /// entry's immutable fields.
        without_changed: Value,
    },
}

type Labels = BTreeMap<String, String>;

/// Compares the Node with the wanted drivers.
///
/// # Errors
/// The annotation with the node IDs is not a JSON object: someone else wrote it, so it must not be
/// overwritten.
pub fn node(node: &Value, wanted: &Wanted) -> Result<NodePlan, String> {
    let metadata = &node["metadata"];
    let annotated = |key: &str| metadata["annotations"][key].as_str().unwrap_or_default();
    let ids_text = annotated(annotation::NODE_ID);
    let ids: Labels = parse_or_empty(ids_text).map_err(|error| {
        format!(
            "failed to parse node's {:?} annotation value ({ids_text:?}) err={error}; mend or remove the annotation",
            annotation::NODE_ID
        )
    })?;
    // Only wharf writes this annotation. If it is unreadable, labels that wharf set count as
    // foreign, so they are kept.
    let owned: BTreeMap<String, Labels> =
        parse_or_empty(annotated(annotation::TOPOLOGY_LABELS)).unwrap_or_default();
    let labels: Labels = serde_json::from_value(metadata["labels"].clone()).unwrap_or_default();

    let mut topology = Topology::new(&labels, &owned, wanted);
    let (mut refused, mut contradicted) = (Refusals::new(), Refusals::new());
    let mut new_ids: Labels = ids.clone();
    new_ids.retain(|name, _| wanted.keep_unknown && !wanted.has(name));
    for (name, info) in &wanted.drivers {
        match topology.claim(name, &info.topology) {
            Err(collision) if !wanted.written.contains(name) => {
                refused.insert(name.clone(), collision);
                continue;
            }
            Err(collision) => {
                topology.claim_what_agrees(name, &info.topology);
                contradicted.insert(name.clone(), collision);
            }
            Ok(()) => {}
        }
        new_ids.insert(name.clone(), info.node_id.clone());
    }

    let mut annotations = Map::new();
    differ(&mut annotations, annotation::NODE_ID, ids_text, &new_ids);
    differ(
        &mut annotations,
        annotation::TOPOLOGY_LABELS,
        annotated(annotation::TOPOLOGY_LABELS),
        &topology.recorded,
    );
    let label_changes = topology.changes();
    let mut changes = Map::new();
    if !annotations.is_empty() {
        changes.insert("annotations".into(), annotations.into());
    }
    if !label_changes.is_empty() {
        changes.insert("labels".into(), label_changes.into());
    }
    let patch = (!changes.is_empty()).then(|| json!({ "metadata": changes }));
    Ok(NodePlan { patch, refused, contradicted })
}

/// Compares the CSINode with the wanted drivers. `refused` drivers are not written.
pub fn csi_node(
    current: Option<&Value>,
    node_name: &str,
    node_uid: &str,
    wanted: &Wanted,
    refused: &Refusals,
) -> CsiNodePlan {
    let listed = wanted.drivers.iter().filter(|(name, _)| !refused.contains_key(name));
    let entries: Vec<(&str, Value)> =
        listed.map(|(name, info)| (name.as_str(), entry(name, info))).collect();
    let Some(current) = current else {
        let drivers: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
        return CsiNodePlan::Create(json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {
                "name": node_name,
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid }
                ],
            },
            "spec": { "drivers": drivers },
        }));
    };
    if !owned_by(current, node_name, node_uid) {
        return CsiNodePlan::Delete;
    }
    let present = current["spec"]["drivers"].as_array().cloned().unwrap_or_default();
    let name_of = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    let kept: Vec<Value> = present
        .iter()
        .filter(|present| {
            let name = name_of(present);
            match entries.iter().find(|(listed, _)| *listed == name) {
                Some((_, entry)) => same(present, entry),
                None => wanted.keep_unknown && !wanted.has(&name),
            }
        })
        .cloned()
        .collect();
    let kept_names: BTreeSet<String> = kept.iter().map(name_of).collect();
    let missing: Vec<Value> = entries
        .into_iter()
        .filter(|(name, _)| !kept_names.contains(*name))
        .map(|(_, entry)| entry)
        .collect();
    if missing.is_empty() && kept.len() == present.len() {
        return CsiNodePlan::Keep;
    }
    let with_drivers = |drivers: Vec<Value>| {
        let mut object = current.clone();
        object["spec"]["drivers"] = drivers.into();
        object
    };
    CsiNodePlan::Replace {
        without_changed: with_drivers(kept.clone()),
        object: with_drivers(kept.into_iter().chain(missing).collect()),
    }
}

impl Wanted {
    fn has(&self, name: &str) -> bool {
        self.drivers.iter().any(|(wanted, _)| wanted == name)
    }
}

/// Topology labels: those of the Node, those of them that wharf set, and those that drivers claim.
struct Topology<'a> {
    labels: &'a Labels,
    owned: Labels,
    claimed: Labels,
    recorded: BTreeMap<String, Labels>,
}

impl<'a> Topology<'a> {
    fn new(labels: &'a Labels, owned: &BTreeMap<String, Labels>, wanted: &Wanted) -> Self {
        let recorded: BTreeMap<_, _> = owned
            .iter()
            .filter(|(driver, _)| wanted.keep_unknown && !wanted.has(driver))
            .map(|(driver, labels)| (driver.clone(), labels.clone()))
            .collect();
        // A label that someone changed after wharf is foreign.
        let unchanged = |by_driver: &BTreeMap<String, Labels>| -> Labels {
            let recorded = by_driver.values().flatten();
            let unchanged = recorded.filter(|(key, value)| labels.get(*key) == Some(*value));
            unchanged.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let (owned, claimed) = (unchanged(owned), unchanged(&recorded));
        Self { labels, owned, claimed, recorded }
    }

    /// Claims all segments of a driver, or none of them.
    fn claim(&mut self, driver: &str, segments: &Labels) -> Result<(), String> {
        if let Some((key, value, existing)) = segments
            .iter()
            .find_map(|(key, value)| Some((key, value, self.contradicting(key, value)?)))
        {
            return Err(format!(
                "detected topology value collision: driver reported {key:?}:{value:?} but existing label is {key:?}:{existing:?}"
            ));
        }
        self.take(driver, segments.clone());
        Ok(())
    }

    /// Claims the segments of a driver that contradict no label.
    fn claim_what_agrees(&mut self, driver: &str, segments: &Labels) {
        let mut segments = segments.clone();
        segments.retain(|key, value| self.contradicting(key, value).is_none());
        self.take(driver, segments);
    }

    fn contradicting(&self, key: &str, value: &str) -> Option<&String> {
        let foreign = self.labels.get(key).filter(|_| !self.owned.contains_key(key));
        self.claimed.get(key).or(foreign).filter(|existing| *existing != value)
    }

    fn take(&mut self, driver: &str, segments: Labels) {
        let mut ours = segments.clone();
        ours.retain(|key, _| !self.labels.contains_key(key) || self.owned.contains_key(key));
        if !ours.is_empty() {
            self.recorded.insert(driver.to_owned(), ours);
        }
        self.claimed.extend(segments);
    }

    /// Label changes of a merge patch: set claimed labels, remove those that wharf set and no
    /// driver claims.
    fn changes(&self) -> Map<String, Value> {
        let set = self.claimed.iter().filter(|(key, value)| self.labels.get(*key) != Some(*value));
        let dropped = self.owned.keys().filter(|key| !self.claimed.contains_key(*key));
        set.map(|(key, value)| (key.clone(), json!(value)))
            .chain(dropped.map(|key| (key.clone(), Value::Null)))
            .collect()
    }
}

fn entry(name: &str, info: &NodeInfo) -> Value {
    let keys: Vec<_> = info.topology.keys().collect();
    let mut entry = json!({ "name": name, "nodeID": info.node_id, "topologyKeys": keys });
    if info.max_volumes > 0 {
        entry["allocatable"] = json!({ "count": info.max_volumes.min(i64::from(i32::MAX)) });
    }
    entry
}

/// Whether two entries agree; the order of topology keys is irrelevant.
fn same(present: &Value, wanted: &Value) -> bool {
    let keys = |entry: &Value| -> BTreeSet<String> {
        serde_json::from_value(entry["topologyKeys"].clone()).unwrap_or_default()
    };
    present["nodeID"] == wanted["nodeID"]
        && present["allocatable"]["count"] == wanted["allocatable"]["count"]
        && keys(present) == keys(wanted)
}

fn owned_by(object: &Value, node_name: &str, node_uid: &str) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| {
        owner["kind"] == "Node" && owner["name"] == node_name && owner["uid"] == node_uid
    })
}

fn parse_or_empty<T: serde::de::DeserializeOwned + Default>(
    text: &str,
) -> Result<T, serde_json::Error> {
    if text.is_empty() { Ok(T::default()) } else { serde_json::from_str(text) }
}

/// Adds the annotation to a merge patch if its parsed value differs; an empty map removes the
/// annotation.
fn differ<V: serde::Serialize + serde::de::DeserializeOwned + PartialEq>(
    patch: &mut Map<String, Value>,
    key: &str,
    present: &str,
    wanted: &BTreeMap<String, V>,
) {
    let unchanged = parse_or_empty::<BTreeMap<String, V>>(present).is_ok_and(|it| it == *wanted);
    if unchanged {
        return;
    }
    let value = if wanted.is_empty() {
        Value::Null
    } else {
        serde_json::to_string(wanted).map_or(Value::Null, Value::String)
    };
    patch.insert(key.to_owned(), value);
}

#[cfg(test)]
mod tests;
