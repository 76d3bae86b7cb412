use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use wharf_csi::NodeInfo;
use wharf_facts::annotation;

use super::{super::plan, CsiNodePlan, Refusals, Wanted};

const NODE: &str = "node-a";
const UID: &str = "uid-now";
const FORMER_UID: &str = "uid-before";

type Pairs<'a> = &'a [(&'a str, &'a str)];

/// The two objects, as in an API server.
#[derive(Clone, Debug, PartialEq)]
struct Objects {
    node: Value,
    csi_node: Option<Value>,
}

impl Objects {
    fn empty() -> Self {
        let metadata = json!({ "name": NODE, "uid": UID, "labels": {}, "annotations": {} });
        Self { node: json!({ "metadata": metadata }), csi_node: None }
    }

    fn ids(self, ids: Pairs<'_>) -> Self {
        self.annotated(annotation::NODE_ID, &text(&map(ids)))
    }

    /// Labels that others set on the Node.
    fn labels(mut self, labels: Pairs<'_>) -> Self {
        for (key, value) in labels {
            self.node["metadata"]["labels"][key] = json!(value);
        }
        self
    }

    /// The record of labels that wharf set, as JSON.
    fn ours(self, by_driver: &Value) -> Self {
        self.annotated(annotation::TOPOLOGY_LABELS, &by_driver.to_string())
    }

    fn annotated(mut self, key: &str, value: &str) -> Self {
        self.node["metadata"]["annotations"][key] = json!(value);
        self
    }

    fn drivers(self, drivers: &[Value]) -> Self {
        self.drivers_of(UID, drivers)
    }

    fn drivers_of(mut self, uid: &str, drivers: &[Value]) -> Self {
        let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid });
        self.csi_node = Some(json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": { "name": NODE, "ownerReferences": [owner] },
            "spec": { "drivers": drivers },
        }));
        self
    }

    /// Plans, and executes the plan like an API server.
    fn sync(&mut self, wanted: &Wanted) -> Result<Refusals, String> {
        let plan = plan::node(&self.node, wanted)?;
        if let Some(patch) = &plan.patch {
            for field in ["labels", "annotations"] {
                merge(&mut self.node["metadata"][field], &patch["metadata"][field]);
            }
        }
        self.csi_node = match self.csi_plan(wanted, &plan.refused) {
            CsiNodePlan::Keep => self.csi_node.take(),
            CsiNodePlan::Create(object) => Some(object),
            CsiNodePlan::Delete => {
                self.csi_node = None;
                match self.csi_plan(wanted, &plan.refused) {
                    CsiNodePlan::Create(object) => Some(object),
                    other => panic!("there is none, so it is made: {other:?}"),
                }
            }
            CsiNodePlan::Replace { object, .. } => Some(object),
        };
        Ok(plan.refused)
    }

    fn csi_plan(&self, wanted: &Wanted, refused: &Refusals) -> CsiNodePlan {
        plan::csi_node(self.csi_node.as_ref(), NODE, UID, wanted, refused)
    }

    fn listed(&self) -> Vec<Value> {
        let object = self.csi_node.as_ref().expect("there is a CSINode");
        object["spec"]["drivers"].as_array().cloned().unwrap_or_default()
    }

    fn annotation(&self, key: &str) -> Option<Value> {
        let value = self.node["metadata"]["annotations"][key].as_str()?;
        Some(serde_json::from_str(value).expect("JSON"))
    }

    fn assert(&self, ids: Pairs<'_>, labels: Pairs<'_>, drivers: &[Value]) {
        let ids = if ids.is_empty() { None } else { Some(json!(map(ids))) };
        assert_eq!(self.annotation(annotation::NODE_ID), ids);
        assert_eq!(self.node["metadata"]["labels"], json!(map(labels)));
        assert_eq!(self.listed(), drivers);
        let owner = &self.csi_node.as_ref().unwrap()["metadata"]["ownerReferences"][0];
        assert_eq!(owner["uid"], UID);
    }
}

fn merge(target: &mut Value, changes: &Value) {
    for (key, value) in changes.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(target.as_object_mut().unwrap().remove(key)),
            value => target[key] = value.clone(),
        }
    }
}

fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn text(map: &BTreeMap<String, String>) -> String {
    serde_json::to_string(map).unwrap()
}

fn entry(name: &str, id: &str, keys: &[&str]) -> Value {
    json!({ "name": name, "nodeID": id, "topologyKeys": keys })
}

fn limited(mut entry: Value, count: i64) -> Value {
    entry["allocatable"] = json!({ "count": count });
    entry
}

fn info(id: &str, max_volumes: i64, topology: Pairs<'_>) -> NodeInfo {
    NodeInfo { node_id: id.to_owned(), max_volumes, topology: map(topology) }
}

fn wanted(drivers: &[(&str, NodeInfo)], keep_unknown: bool) -> Wanted {
    let drivers = drivers.iter().map(|(name, info)| ((*name).to_owned(), info.clone()));
    Wanted { drivers: drivers.collect(), keep_unknown, ..Wanted::default() }
}

/// The objects before, a driver's information, and the objects after.
struct Install<'a> {
    name: &'a str,
    before: Objects,
    driver: NodeInfo,
    ids: Pairs<'a>,
    labels: Pairs<'a>,
    drivers: Vec<Value>,
}

const D: &str = "com.example.csi.driver1";
const OTHER: &str = "net.example.storage.other";
const ZONE: &str = "com.example.csi/zone";
const RACK: &str = "com.example.csi/rack";

#[test]
fn installing_a_driver() {
    let zone = &[(ZONE, "zone-a")];
    let known =
        || Objects::empty().ids(&[(D, "id-1")]).labels(zone).drivers(&[entry(D, "id-1", &[ZONE])]);
    let other = || {
        let labels = &[("net.example.storage/rack", "rack1")];
        let entry = entry(OTHER, "other-id", &["net.example.storage/rack"]);
        Objects::empty().ids(&[(OTHER, "other-id")]).labels(labels).drivers(&[entry])
    };
    let cases = [
        Install {
            name: "on an empty node",
            before: Objects::empty(),
            driver: info("id-1", 0, zone),
            ids: &[(D, "id-1")],
            labels: zone,
            drivers: vec![entry(D, "id-1", &[ZONE])],
        },
        Install {
            name: "that is there already",
            before: known(),
            driver: info("id-1", 0, zone),
            ids: &[(D, "id-1")],
            labels: zone,
            drivers: vec![entry(D, "id-1", &[ZONE])],
        },
        Install {
            name: "that is there without topology",
            before: Objects::empty().ids(&[(D, "id-1")]).drivers(&[entry(D, "id-1", &[])]),
            driver: info("id-1", 0, zone),
            ids: &[(D, "id-1")],
            labels: zone,
            drivers: vec![entry(D, "id-1", &[ZONE])],
        },
        Install {
            name: "next to another",
            before: other(),
            driver: info("id-1", 0, zone),
            ids: &[(D, "id-1"), (OTHER, "other-id")],
            labels: &[(ZONE, "zone-a"), ("net.example.storage/rack", "rack1")],
            drivers: vec![
                entry(OTHER, "other-id", &["net.example.storage/rack"]),
                entry(D, "id-1", &[ZONE]),
            ],
        },
        Install {
            name: "whose ID and keys changed: new labels are added, someone else's stay",
            before: known(),
            driver: info("id-2", 0, &[(RACK, "rack-a")]),
            ids: &[(D, "id-2")],
            labels: &[(ZONE, "zone-a"), (RACK, "rack-a")],
            drivers: vec![entry(D, "id-2", &[RACK])],
        },
        Install {
            name: "whose ID and value changed, with a label of ours: it is replaced",
            before: known().ours(&json!({ D: { ZONE: "zone-a" } })),
            driver: info("id-2", 0, &[(ZONE, "zone-b")]),
            ids: &[(D, "id-2")],
            labels: &[(ZONE, "zone-b")],
            drivers: vec![entry(D, "id-2", &[ZONE])],
        },
        Install {
            name: "on a CSINode of a former Node without drivers",
            before: Objects::empty().drivers_of(FORMER_UID, &[]),
            driver: info("id-1", 0, zone),
            ids: &[(D, "id-1")],
            labels: zone,
            drivers: vec![entry(D, "id-1", &[ZONE])],
        },
        Install {
            name: "on a CSINode of a former Node with the driver in it",
            before: Objects::empty().drivers_of(FORMER_UID, &[entry(D, "old", &["old-key"])]),
            driver: info("id-1", 0, zone),
            ids: &[(D, "id-1")],
            labels: zone,
            drivers: vec![entry(D, "id-1", &[ZONE])],
        },
        Install {
            name: "without topology on an empty node",
            before: Objects::empty(),
            driver: info("id-1", 0, &[]),
            ids: &[(D, "id-1")],
            labels: &[],
            drivers: vec![entry(D, "id-1", &[])],
        },
        Install {
            name: "that lost its topology: someone else's label stays",
            before: known(),
            driver: info("id-1", 0, &[]),
            ids: &[(D, "id-1")],
            labels: zone,
            drivers: vec![entry(D, "id-1", &[])],
        },
        Install {
            name: "without topology next to another",
            before: other(),
            driver: info("id-1", 0, &[]),
            ids: &[(D, "id-1"), (OTHER, "other-id")],
            labels: &[("net.example.storage/rack", "rack1")],
            drivers: vec![
                entry(OTHER, "other-id", &["net.example.storage/rack"]),
                entry(D, "id-1", &[]),
            ],
        },
    ];
    for Install { name, mut before, driver, ids, labels, drivers } in cases {
        println!("installing a driver {name}");
        let refused = before.sync(&wanted(&[(D, driver)], true)).unwrap();
        assert_eq!(refused, Refusals::new());
        before.assert(ids, labels, &drivers);
    }
}

#[test]
fn the_limit_of_volumes() {
    let most = i64::from(i32::MAX);
    let bare = || entry(D, "id-1", &[]);
    let cases = [
        (10, None, limited(bare(), 10)),
        (most, None, limited(bare(), most)),
        (most + 1, None, limited(bare(), most)),
        (i64::MAX, None, limited(bare(), most)),
        (0, None, bare()),
        (-1, None, bare()),
        (10, Some(limited(bare(), 10)), limited(bare(), 10)),
        (20, Some(limited(bare(), 10)), limited(bare(), 20)),
        (0, Some(limited(bare(), 10)), bare()),
    ];
    for (said, present, expected) in cases {
        let mut objects = Objects::empty().drivers(present.as_slice());
        objects.sync(&wanted(&[(D, info("id-1", said, &[]))], false)).unwrap();
        assert_eq!(objects.listed(), [expected], "{said} where there was {present:?}");
    }
}

#[test]
fn a_negative_limit_is_not_written_again_and_again() {
    let wanted = wanted(&[(D, info("id-1", -1, &[]))], false);
    let objects = Objects::empty().drivers(&[entry(D, "id-1", &[])]);
    assert_eq!(objects.csi_plan(&wanted, &Refusals::new()), CsiNodePlan::Keep);
}

#[test]
fn removing_a_driver() {
    let zone = &[(ZONE, "zone-a")];
    let gone = || wanted(&[], false);
    let other = || wanted(&[(OTHER, info("other-id", 0, &[]))], false);
    let cases: [(&str, Objects, Wanted, Pairs<'_>, Vec<Value>); 5] = [
        ("from nothing", Objects::empty().drivers(&[]), gone(), &[], vec![]),
        (
            "that is there; the CSINode stays",
            Objects::empty().ids(&[(D, "id-1")]).labels(zone).drivers(&[entry(D, "id-1", &[])]),
            gone(),
            &[],
            vec![],
        ),
        (
            "while another driver stays",
            Objects::empty()
                .ids(&[(D, "id-1"), (OTHER, "other-id")])
                .labels(zone)
                .drivers(&[entry(D, "id-1", &[ZONE]), entry(OTHER, "other-id", &[])]),
            other(),
            &[(OTHER, "other-id")],
            vec![entry(OTHER, "other-id", &[])],
        ),
        (
            "that only the annotation knows",
            Objects::empty().ids(&[(D, "id-1")]).labels(zone).drivers(&[]),
            gone(),
            &[],
            vec![],
        ),
        (
            "that is unknown, while strangers may come back",
            Objects::empty().ids(&[(OTHER, "other-id")]).drivers(&[]),
            wanted(&[], true),
            &[(OTHER, "other-id")],
            vec![],
        ),
    ];
    for (name, mut before, wanted, ids, drivers) in cases {
        println!("removing a driver {name}");
        let labels = before.node["metadata"]["labels"].clone();
        before.sync(&wanted).unwrap();
        assert_eq!(before.node["metadata"]["labels"], labels, "someone else's labels stay");
        let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap();
        let labels: Vec<_> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        before.assert(ids, &labels, &drivers);
    }
}

#[test]
fn a_value_that_contradicts_someone_elses_label_is_refused() {
    let mut objects = Objects::empty()
        .ids(&[(D, "id-1")])
        .labels(&[(ZONE, "zone-a")])
        .drivers(&[entry(D, "id-1", &[ZONE])]);
    let driver = info("id-2", 0, &[(RACK, "rack-a"), (ZONE, "zone-b")]);
    let refused = objects.sync(&wanted(&[(D, driver)], false)).unwrap();
    let text = format!(
        "detected topology value collision: driver reported {ZONE:?}:\"zone-b\" but existing label is {ZONE:?}:\"zone-a\""
    );
    assert_eq!(refused, Refusals::from([(D.to_owned(), text)]));
    // All or nothing: the segment without a collision is missing, too.
    objects.assert(&[], &[(ZONE, "zone-a")], &[]);
}

#[test]
fn of_two_drivers_that_contradict_each_other_the_first_stays() {
    let mut objects = Objects::empty();
    let drivers =
        [(OTHER, info("b", 0, &[(ZONE, "zone-b")])), (D, info("a", 0, &[(ZONE, "zone-a")]))];
    let refused = objects.sync(&wanted(&drivers, false)).unwrap();
    assert_eq!(refused.keys().collect::<Vec<_>>(), [D]);
    objects.assert(&[(OTHER, "b")], &[(ZONE, "zone-b")], &[entry(OTHER, "b", &[ZONE])]);
}

#[test]
fn an_annotation_that_cannot_be_read_is_an_error_and_stays() {
    for unreadable in ["garbage", "[]", r#"{"a":1}"#] {
        let mut objects = Objects::empty().annotated(annotation::NODE_ID, unreadable);
        let before = objects.clone();
        let error = objects.sync(&wanted(&[(D, info("id-1", 0, &[]))], false)).unwrap_err();
        assert!(
            error.starts_with(&format!(
                "failed to parse node's \"{}\" annotation value ({unreadable:?})",
                annotation::NODE_ID
            )),
            "{error}"
        );
        assert_eq!(objects, before);
    }
}

#[test]
fn an_unreadable_record_of_labels_makes_them_someone_elses() {
    let mut objects =
        Objects::empty().labels(&[(ZONE, "zone-a")]).annotated(annotation::TOPOLOGY_LABELS, "?");
    let same = wanted(&[(D, info("id-1", 0, &[(ZONE, "zone-a")]))], false);
    assert_eq!(objects.sync(&same).unwrap(), Refusals::new());
    assert_eq!(objects.annotation(annotation::TOPOLOGY_LABELS), None);
    objects.sync(&wanted(&[], false)).unwrap();
    objects.assert(&[], &[(ZONE, "zone-a")], &[]);
}

#[test]
fn own_labels_leave_with_their_driver() {
    let mut objects = Objects::empty().labels(&[("kept", "by someone")]);
    let driver = info("id-1", 0, &[(ZONE, "zone-a"), ("kept", "by someone")]);
    objects.sync(&wanted(&[(D, driver)], false)).unwrap();
    assert_eq!(
        objects.annotation(annotation::TOPOLOGY_LABELS),
        Some(json!({ D: { ZONE: "zone-a" } })),
        "a label that was there is not ours, also where it agrees"
    );
    objects.sync(&wanted(&[], false)).unwrap();
    objects.assert(&[], &[("kept", "by someone")], &[]);
    assert_eq!(objects.annotation(annotation::TOPOLOGY_LABELS), None);
}

#[test]
fn a_shared_label_leaves_with_its_last_driver() {
    let zone = || info("id", 0, &[(ZONE, "zone-a")]);
    let mut objects = Objects::empty();
    objects.sync(&wanted(&[(D, zone())], false)).unwrap();
    objects.sync(&wanted(&[(D, zone()), (OTHER, zone())], false)).unwrap();
    objects.sync(&wanted(&[(OTHER, zone())], false)).unwrap();
    objects.assert(&[(OTHER, "id")], &[(ZONE, "zone-a")], &[entry(OTHER, "id", &[ZONE])]);
    objects.sync(&wanted(&[], false)).unwrap();
    objects.assert(&[], &[], &[]);
}

#[test]
fn a_label_that_someone_changed_is_no_longer_ours() {
    let ours = || {
        let record = json!({ D: { ZONE: "zone-a" } });
        Objects::empty().ids(&[(D, "id-1")]).ours(&record).labels(&[(ZONE, "changed")])
    };
    // A label that someone changed is neither removed with the driver, nor reset, nor replaced.
    for keep_unknown in [false, true] {
        let mut objects = ours();
        objects.sync(&wanted(&[], keep_unknown)).unwrap();
        assert_eq!(objects.node["metadata"]["labels"], json!({ ZONE: "changed" }));
    }
    let mut objects = ours();
    let driver = info("id-1", 0, &[(ZONE, "zone-a")]);
    let refused = objects.sync(&wanted(&[(D, driver)], false)).unwrap();
    assert!(refused.contains_key(D));
    assert_eq!(objects.node["metadata"]["labels"], json!({ ZONE: "changed" }));
}

#[test]
fn a_label_changed_under_a_driver_in_use_takes_neither_out() {
    let mut objects = Objects::empty();
    let driver = info("id-1", 0, &[(ZONE, "zone-a"), ("rack", "r1")]);
    objects.sync(&wanted(&[(D, driver.clone())], false)).unwrap();
    objects.node["metadata"]["labels"][ZONE] = json!("changed");
    let written = Wanted { written: [D.to_owned()].into(), ..wanted(&[(D, driver)], false) };
    for _ in 0..2 {
        assert_eq!(objects.sync(&written), Ok(Refusals::new()));
        let labels = &[("rack", "r1"), (ZONE, "changed")];
        objects.assert(&[(D, "id-1")], labels, &[entry(D, "id-1", &[ZONE, "rack"])]);
    }
    // Labels that wharf set are removed with the driver; those of others stay.
    objects.sync(&wanted(&[], false)).unwrap();
    objects.assert(&[], &[(ZONE, "changed")], &[]);
}

#[test]
fn what_unknown_drivers_left_is_kept_for_as_long_as_they_may_come_back() {
    let mut objects = Objects::empty();
    let zone = &[(ZONE, "zone-a")];
    objects.sync(&wanted(&[(D, info("id-1", 7, zone))], false)).unwrap();
    let before = objects.clone();
    objects.sync(&wanted(&[], true)).unwrap();
    assert_eq!(objects, before);
    objects.sync(&wanted(&[(OTHER, info("id-2", 0, &[]))], true)).unwrap();
    let mine = limited(entry(D, "id-1", &[ZONE]), 7);
    objects.assert(&[(D, "id-1"), (OTHER, "id-2")], zone, &[mine, entry(OTHER, "id-2", &[])]);
    objects.sync(&wanted(&[(OTHER, info("id-2", 0, &[]))], false)).unwrap();
    objects.assert(&[(OTHER, "id-2")], &[], &[entry(OTHER, "id-2", &[])]);
}

#[test]
fn an_entry_that_changes_is_left_out_of_the_first_of_two_steps() {
    let objects =
        Objects::empty().drivers(&[entry(D, "old", &[ZONE]), entry(OTHER, "other-id", &[])]);
    let drivers = [(OTHER, info("other-id", 0, &[])), (D, info("new", 0, &[(ZONE, "zone-a")]))];
    let plan = objects.csi_plan(&wanted(&drivers, false), &Refusals::new());
    let CsiNodePlan::Replace { object, without_changed } = plan else { panic!("{plan:?}") };
    assert_eq!(without_changed["spec"]["drivers"], json!([entry(OTHER, "other-id", &[])]));
    assert_eq!(
        object["spec"]["drivers"],
        json!([entry(OTHER, "other-id", &[]), entry(D, "new", &[ZONE])])
    );
}

#[test]
fn the_order_of_topology_keys_is_no_difference() {
    let objects = Objects::empty().drivers(&[entry(D, "id-1", &[ZONE, RACK])]);
    let driver = info("id-1", 0, &[(RACK, "r"), (ZONE, "z")]);
    assert_eq!(
        objects.csi_plan(&wanted(&[(D, driver)], false), &Refusals::new()),
        CsiNodePlan::Keep
    );
}

fn some_pairs() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map("[k-m]", "[v-w]", 0..3)
}

fn some_wanted() -> impl Strategy<Value = Wanted> {
    let info = ("[x-z]", -1_i64..3, some_pairs())
        .prop_map(|(node_id, max_volumes, topology)| NodeInfo { node_id, max_volumes, topology });
    let drivers = proptest::collection::btree_map("[a-d]", info, 0..4)
        .prop_map(|drivers| drivers.into_iter().collect::<Vec<_>>())
        .prop_shuffle();
    (drivers, any::<(bool, bool)>()).prop_map(|(drivers, (keep_unknown, half))| {
        let written = drivers.iter().take(if half { drivers.len() / 2 } else { 0 });
        let written = written.map(|(name, _)| name.clone()).collect();
        Wanted { drivers, written, keep_unknown }
    })
}

fn some_objects() -> impl Strategy<Value = Objects> {
    let ours = proptest::collection::btree_map("[a-d]", some_pairs(), 0..3);
    let entry = ("[a-d]", "[x-z]", some_pairs()).prop_map(|(name, id, pairs)| {
        let keys: Vec<_> = pairs.keys().collect();
        (name, json!({ "nodeID": id, "topologyKeys": keys }))
    });
    let csi_node = proptest::option::of((
        prop_oneof![Just(UID), Just(FORMER_UID)],
        proptest::collection::vec(entry, 0..4),
    ));
    (some_pairs(), some_pairs(), ours, csi_node).prop_map(|(ids, labels, ours, csi_node)| {
        let mut objects = Objects::empty().ours(&json!(ours));
        objects = objects.annotated(annotation::NODE_ID, &text(&ids));
        objects.node["metadata"]["labels"] = json!(labels);
        let Some((uid, entries)) = csi_node else { return objects };
        let by_name: BTreeMap<String, Value> = entries.into_iter().collect();
        let drivers: Vec<_> = by_name
            .into_iter()
            .map(|(name, mut entry)| {
                entry["name"] = json!(name);
                entry
            })
            .collect();
        objects.drivers_of(uid, &drivers)
    })
}

proptest! {
    #[test]
    fn a_second_plan_finds_nothing_to_do(mut objects in some_objects(), mut wanted in some_wanted()) {
        let refused = objects.sync(&wanted).unwrap();
        // The caller drops refused drivers; without them nothing else may change.
        wanted.drivers.retain(|(name, _)| !refused.contains_key(name));
        let again = plan::node(&objects.node, &wanted).unwrap();
        prop_assert_eq!(again.patch, None);
        prop_assert_eq!(again.refused, Refusals::new());
        prop_assert_eq!(objects.csi_plan(&wanted, &Refusals::new()), CsiNodePlan::Keep);
    }

    #[test]
    fn labels_of_others_are_never_touched(mut objects in some_objects(), wanted in some_wanted()) {
        let labels = objects.node["metadata"]["labels"].clone();
        let ours = objects.annotation(annotation::TOPOLOGY_LABELS).unwrap_or_default();
        objects.sync(&wanted).unwrap();
        for (key, value) in labels.as_object().unwrap() {
            let recorded = ours.as_object().into_iter().flatten().any(|(_, it)| it[key] == *value);
            if !recorded {
                prop_assert_eq!(&objects.node["metadata"]["labels"][key], value);
            }
        }
    }
}
