use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use wharf_cluster::{Kind, Store};
use wharf_csi::{Driver, DriverOptions};

use super::{
    super::{CapacityInputs, CapacityOptions},
    *,
};

const DRIVER: &str = "d";

#[test]
fn an_object_is_found_by_what_it_tells_of() {
    let object: CsiStorageCapacity = serde_json::from_value(json!({
        "metadata": { "name": "csisc-1" },
        "storageClassName": "fast",
        "nodeTopology": { "matchLabels": { "zone": "a", "rack": "1" } },
        "capacity": "1Gi",
    }))
    .unwrap();
    let item = Item::of(&object).unwrap();
    assert_eq!(item.key(), "fast/rack=1,zone=a");
    assert_eq!(Item::of(&CsiStorageCapacity::default()), None);
}

#[test]
fn a_manager_fits_into_a_label() {
    assert_eq!(managed_by(None), "external-provisioner");
    assert_eq!(managed_by(Some("n1")), "external-provisioner-n1");
    let hash = |text| format!("{:08x}", fnv1a(text));
    assert_eq!(hash("a"), "e40c292c");
    let node = "x".repeat(43);
    let expected = format!("external-p-{}-{node}", hash("external-provisioner"));
    assert_eq!(managed_by(Some(&node)), expected);
    let node = "x".repeat(60);
    let expected =
        format!("external-provisioner-{}", hash(&format!("external-provisioner-{node}")));
    assert_eq!(managed_by(Some(&node)), expected);
}

/// Nodes by name, with the driver's keys in their CSINode and with their labels; an object is
/// missing if its part is.
type Nodes<'a> = &'a [(&'a str, Option<&'a [&'a str]>, Option<&'a [(&'a str, &'a str)]>)];

fn store<K: Kind>(objects: impl IntoIterator<Item = Value>) -> std::sync::Arc<Store<K>> {
    let store = Store::new(|_| true);
    for object in objects {
        store.observe(serde_json::from_value(object).unwrap());
    }
    store
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "resourceVersion": "1" })
}

/// Classes by name: one with WaitForFirstConsumer, one with immediate binding, and one of another
/// driver.
fn classes() -> std::sync::Arc<Store<StorageClass>> {
    let late = "WaitForFirstConsumer";
    let classes =
        [("late", DRIVER, late), ("now", DRIVER, "Immediate"), ("foreign", "other", late)];
    store(classes.map(|(name, driver, mode)| {
        json!({ "metadata": metadata(name), "provisioner": driver, "volumeBindingMode": mode })
    }))
}

/// Keys of all items, in order.
fn keys(nodes: Nodes<'_>, immediate: bool, place: Option<Segment>) -> Vec<String> {
    let csi_nodes = nodes.iter().map(|(name, keys, _)| {
        let own = keys.map(|keys| json!({ "name": DRIVER, "nodeID": name, "topologyKeys": keys }));
        let other = json!({ "name": "other", "nodeID": name, "topologyKeys": ["zone"] });
        let drivers: Vec<Value> = own.into_iter().chain([other]).collect();
        json!({ "metadata": metadata(name), "spec": { "drivers": drivers } })
    });
    let labelled = nodes.iter().filter_map(|(name, _, labels)| {
        let labels: Segment = (*labels)?
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let mut metadata = metadata(name);
        metadata["labels"] = json!(labels);
        Some(json!({ "metadata": metadata }))
    });
    let options = CapacityOptions {
        namespace: "default".to_owned(),
        owner: None,
        poll: std::time::Duration::MAX,
        immediate,
        workers: 1,
    };
    let nobody = tower::service_fn(async |_: Request<Body>| {
        Ok::<_, kube::Error>(Response::new(Body::empty()))
    });
    let inputs = CapacityInputs {
        driver_name: DRIVER.to_owned(),
        driver: Driver::new("/nonexistent", DriverOptions::default()),
        node: None,
        place,
        classes: classes(),
        csi_nodes: store(csi_nodes),
        nodes: store(labelled),
    };
    let capacities = Capacities::new(options, Client::new(nobody, "default"), inputs);
    let mut keys: Vec<String> = desired(&capacities).iter().map(Item::key).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn there_is_one_for_each_place_in_which_the_driver_is() {
    let (zone, both): (&[&str], &[&str]) = (&["zone"], &["zone", "rack"]);
    let (a, b) = (Some(&[("zone", "a"), ("rack", "1")][..]), Some(&[("zone", "b")][..]));
    let rows: [(&str, Nodes<'_>, &[&str]); 11] = [
        ("no node", &[], &[]),
        ("a node", &[("1", Some(zone), a)], &["late/zone=a"]),
        ("another beside it", &[("1", Some(zone), a), ("2", Some(zone), a)], &["late/zone=a"]),
        (
            "another elsewhere",
            &[("1", Some(zone), a), ("2", Some(zone), b)],
            &["late/zone=a", "late/zone=b"],
        ),
        ("the first is gone", &[("2", Some(zone), b)], &["late/zone=b"]),
        ("it moved", &[("2", Some(zone), a)], &["late/zone=a"]),
        ("the driver left it", &[("1", Some(zone), a), ("2", None, b)], &["late/zone=a"]),
        ("its driver has no keys", &[("1", Some(&[]), a), ("2", Some(zone), b)], &["late/zone=b"]),
        ("its Node is not there", &[("1", Some(zone), None)], &[]),
        ("it lacks a label", &[("1", Some(both), b)], &[]),
        (
            "nodes differ in their keys",
            &[("1", Some(both), a), ("2", Some(zone), a)],
            &["late/rack=1,zone=a", "late/zone=a"],
        ),
    ];
    for (row, nodes, expected) in rows {
        assert_eq!(keys(nodes, false, None), expected, "{row}");
    }
}

#[tokio::test]
async fn there_is_one_for_each_class_that_counts() {
    let nodes: Nodes<'_> = &[("1", Some(&["zone"]), Some(&[("zone", "a")]))];
    assert_eq!(keys(nodes, false, None), ["late/zone=a"]);
    assert_eq!(keys(nodes, true, None), ["late/zone=a", "now/zone=a"]);
    // A driver of one node knows its segment without the API.
    let here = Segment::from([("node".to_owned(), "n".to_owned())]);
    assert_eq!(keys(nodes, false, Some(here.clone())), ["late/node=n"]);
    assert_eq!(keys(&[], true, Some(here)), ["late/node=n", "now/node=n"]);
}
