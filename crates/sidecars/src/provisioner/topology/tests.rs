use std::sync::Arc;

use serde_json::json;
use wharf_cluster::{CsiNode, Node, Store};

use super::*;

const DRIVER: &str = "d";

struct TestCluster {
    csi_nodes: Arc<Store<CsiNode>>,
    nodes: Arc<Store<Node>>,
}

impl TestCluster {
    /// Nodes by name, with their zone and rack; an empty text is a missing label.
    fn new(nodes: &[(&str, &str, &str)]) -> Self {
        let cluster = Self { csi_nodes: Store::new(|_| true), nodes: Store::new(|_| true) };
        for (name, zone, rack) in nodes {
            cluster.add(name, zone, rack);
        }
        cluster
    }

    fn add(&self, name: &str, zone: &str, rack: &str) {
        let version = (name.len() + zone.len() * 10 + 1).to_string();
        let metadata = json!({ "name": name, "resourceVersion": version });
        let driver = json!({ "name": DRIVER, "nodeID": name, "topologyKeys": ["zone", "rack"] });
        let csi_node = json!({ "metadata": metadata, "spec": { "drivers": [driver] } });
        self.csi_nodes.observe(serde_json::from_value(csi_node).unwrap());
        let mut node = json!({ "metadata": metadata });
        for (key, value) in [("zone", zone), ("rack", rack)] {
            if !value.is_empty() {
                node["metadata"]["labels"][key] = json!(value);
            }
        }
        self.nodes.observe(serde_json::from_value(node).unwrap());
    }

    fn ask(
        &self,
        wish: Wish<'_>,
        options: TopologyOptions,
        memory: &mut Memory,
    ) -> Result<Option<(String, String)>, TopologyRefusal> {
        let places =
            Places::Cluster { driver: DRIVER, csi_nodes: &self.csi_nodes, nodes: &self.nodes };
        let answer = requirement(wish, options, &places, memory)?;
        Ok(answer.map(|it| (text(&it.requisite), text(&it.preferred))))
    }
}

/// Values only: `a1 b2` for zone a, rack 1 and zone b, rack 2.
fn text(topologies: &[Topology]) -> String {
    let place = |it: &Topology| {
        let value = |key: &str| it.segments.get(key).cloned().unwrap_or_default();
        format!("{}{}", value("zone"), value("rack"))
    };
    topologies.iter().map(place).collect::<Vec<_>>().join(" ")
}

fn wish(node: Option<&'static str>) -> Wish<'static> {
    Wish { claim: "data-testset-1", allowed: &[], node }
}

fn allowed(zones: &[&str], racks: &[&str]) -> Vec<TopologyTerm> {
    let mut labels = vec![json!({ "key": "zone", "values": zones })];
    if !racks.is_empty() {
        labels.push(json!({ "key": "rack", "values": racks }));
    }
    vec![serde_json::from_value(json!({ "matchLabelExpressions": labels })).unwrap()]
}

fn formatted(
    requisite: &str,
    preferred: &str,
) -> Result<Option<(String, String)>, TopologyRefusal> {
    Ok(Some((requisite.to_owned(), preferred.to_owned())))
}

const LOOSE: TopologyOptions = TopologyOptions { enabled: true, strict: false, immediate: true };
const STRICT: TopologyOptions = TopologyOptions { enabled: true, strict: true, immediate: true };
const NODES: &[(&str, &str, &str)] =
    &[("n3", "c", "1"), ("n1", "a", "1"), ("n2", "b", "1"), ("n4", "b", "1"), ("bare", "", "")];

#[test]
fn the_selected_place_comes_first() {
    let cluster = TestCluster::new(NODES);
    let ask = |options, wish| cluster.ask(wish, options, &mut Memory::default());
    assert_eq!(ask(LOOSE, wish(Some("n2"))), formatted("a1 b1 c1", "b1 c1 a1"));
    assert_eq!(ask(STRICT, wish(Some("n2"))), formatted("b1", "b1"));
}

#[test]
fn without_a_node_claims_are_spread() {
    let cluster = TestCluster::new(NODES);
    let ask =
        |options, claim| cluster.ask(Wish { claim, ..wish(None) }, options, &mut Memory::default());
    let first = offset("data-testset-1", 3);
    let preferred = ["a1 b1 c1", "b1 c1 a1", "c1 a1 b1"];
    assert_eq!(ask(LOOSE, "data-testset-1"), formatted("a1 b1 c1", preferred[first]));
    assert_eq!(ask(LOOSE, "data-testset-2"), formatted("a1 b1 c1", preferred[(first + 1) % 3]));
    let silent = TopologyOptions { immediate: false, ..LOOSE };
    assert_eq!(ask(silent, "data-testset-1"), Ok(None));
}

#[test]
fn a_class_limits_the_places() {
    let cluster = TestCluster::new(NODES);
    let ask = |options, node, allowed: &[TopologyTerm]| {
        cluster.ask(Wish { allowed, ..wish(node) }, options, &mut Memory::default())
    };
    let both = allowed(&["b", "a"], &["2", "1"]);
    assert_eq!(ask(LOOSE, Some("n2"), &both), formatted("a1 b1 a2 b2", "b1 a2 b2 a1"));
    // Zones without racks: a topology of the class may be larger than a segment of a node.
    let zones = allowed(&["a", "b"], &[]);
    assert_eq!(ask(LOOSE, Some("n1"), &zones), formatted("a b", "a b"));
    assert_eq!(ask(STRICT, Some("n1"), &zones), formatted("a1", "a1"));
    for options in [STRICT, LOOSE] {
        let refused = ask(options, Some("n3"), &zones).unwrap_err();
        assert!(refused.to_string().ends_with("is not in allowed topologies"), "{refused}");
    }
    let silent = TopologyOptions { immediate: false, ..LOOSE };
    let (requisite, _) = ask(silent, None, &zones).unwrap().unwrap();
    assert_eq!(requisite, "a b");
}

#[test]
fn nodes_that_say_too_little_are_refused() {
    let cluster = TestCluster::new(NODES);
    let refused = |node| cluster.ask(wish(Some(node)), LOOSE, &mut Memory::default()).unwrap_err();
    assert_eq!(refused("gone"), TopologyRefusal::UnknownNode("gone".to_owned()));
    let keys = vec!["zone".to_owned(), "rack".to_owned()];
    assert_eq!(refused("bare"), TopologyRefusal::NoLabels { node: "bare".to_owned(), keys });
    let empty = TestCluster::new(&[]);
    let nowhere = empty.ask(wish(None), LOOSE, &mut Memory::default());
    assert_eq!(nowhere, Err(TopologyRefusal::Nowhere));
}

#[test]
fn the_next_attempt_says_the_same() {
    let mut memory = Memory::default();
    let first = TestCluster::new(NODES).ask(wish(Some("n2")), LOOSE, &mut memory);
    // The node was replaced by others.
    let later = TestCluster::new(&[("n9", "z", "9")]).ask(wish(Some("n2")), LOOSE, &mut memory);
    assert_eq!(later, first);
    // Another node makes a new request.
    let moved = TestCluster::new(NODES).ask(wish(Some("n1")), LOOSE, &mut memory);
    assert_eq!(moved, formatted("a1 b1 c1", "a1 b1 c1"));
}

#[test]
fn a_driver_on_each_node_knows_its_own_place_only() {
    let segment = Segment::from([("node".to_owned(), "n1".to_owned())]);
    let places = Places::Own { node: "n1", segment: &segment };
    let asked = requirement(wish(Some("n1")), LOOSE, &places, &mut Memory::default());
    let asked = asked.unwrap().unwrap();
    assert_eq!(asked.requisite, [Topology { segments: segment.clone() }]);
    assert_eq!(asked.preferred, asked.requisite);
}

#[test]
fn places_that_only_a_note_knows_are_not_believed() {
    let cluster = TestCluster::new(&[("n1", "a", "1"), ("n2", "b", "2")]);
    let places =
        Places::Cluster { driver: DRIVER, csi_nodes: &cluster.csi_nodes, nodes: &cluster.nodes };
    let noted = |memory: serde_json::Value| -> Memory { serde_json::from_value(memory).unwrap() };
    let place = |zone: &str, rack: &str| json!({ "zone": zone, "rack": rack });
    let keys = json!(["zone", "rack"]);
    let own = json!({ "node": "n1", "keys": keys, "selected": place("a", "1"), "all": [place("b", "2")] });
    assert_eq!(places.known_part(noted(own.clone())), noted(own.clone()));
    for (field, forged) in [
        ("keys", json!(["evil"])),
        ("selected", place("a", "9")),
        ("all", json!([place("b", "2"), { "evil": "zone" }])),
        ("node", json!("n9")),
    ] {
        let mut memory = own.clone();
        memory[field] = forged;
        let known = places.known_part(noted(memory.clone()));
        assert_eq!(known, noted(json!({ "node": memory["node"] })), "{field}");
    }
}
