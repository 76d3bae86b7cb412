//! The API objects that a fleet of Go's sidecars and a fleet of ours write for the same work.

use serde_json::{Value, json};
use wharf_facts::finalizer;

use crate::{
    life::Life,
    program::{Kind, Make},
    site::Site,
};

const UID: usize = 36;
/// Two for each claim, three for the snapshot, two for the growth, two for the class of attributes.
const EVENTS: usize = 11;
const DIFFERENT: [&str; 9] = [
    "creationTime",
    "creationTimestamp",
    "generation",
    "lastPhaseTransitionTime",
    "managedFields",
    "resourceVersion",
    "uid",
    "storage.kubernetes.io/csiProvisionerIdentity",
    // Written by resizers that are newer than the one here.
    "volume.kubernetes.io/node-expansion-not-required",
];

/// The objects of a life in its middle, when everything is made and nothing is deleted, and the
/// events of all of it.
async fn left_by(site: &Site, make: Make) -> Option<Vec<Value>> {
    let make_of = |kind| if kind == Kind::Attacher { Make::Ours } else { make };
    let _fleet = site.start_all(make_of)?;
    let life = Life::begin(site, "data").await;
    life.attach().await;
    life.snapshot().await;
    let restored = life.restore().await;
    life.expand().await;
    life.modify().await;
    let mut objects = Vec::new();
    for path in life.paths().await.into_iter().chain(restored.paths().await) {
        if site.api.get(&path).await.is_some() {
            objects.push(comparable(site.api.wait(&path, has_settled).await, site));
        }
    }
    life.detach().await;
    life.delete_snapshot().await;
    life.end().await;
    restored.end().await;
    objects.extend(events(site).await);
    Some(objects)
}

/// What people are told. Warnings are left out: Go's sidecars give one for each conflict of writes.
async fn events(site: &Site) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/{}/events", site.name);
    let path = format!("{path}?fieldSelector=type%3DNormal");
    let has_all = |list: &Value| list["items"].as_array().is_some_and(|all| all.len() >= EVENTS);
    let list = site.api.wait(&path, has_all).await;
    let told = list["items"].as_array().unwrap().iter().map(|event| {
        let about = ["kind", "namespace", "name"].map(|field| &event["involvedObject"][field]);
        // One of Go's messages ends with a blank.
        let message = event["message"].as_str().unwrap().trim_end();
        comparable(json!([about, event["reason"], message]), site)
    });
    let mut told: Vec<Value> = told.collect();
    told.sort_by_cached_key(Value::to_string);
    told
}

/// Whether the protections of sources are gone, which the work that they protect does not wait for.
fn has_settled(object: &Value) -> bool {
    let passing = [finalizer::PVC_SNAPSHOT_PROTECTION, finalizer::SNAPSHOT_RESTORE_PROTECTION];
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_none_or(|all| all.iter().all(|it| passing.iter().all(|passing| it != passing)))
}

/// Without what differs from one object to the next: names, IDs, versions, times.
fn comparable(value: Value, site: &Site) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(key, _)| !DIFFERENT.contains(&key.as_str()));
            Value::Object(fields.map(|(key, value)| (key, comparable(value, site))).collect())
        }
        Value::Array(values) => {
            Value::Array(values.into_iter().map(|value| comparable(value, site)).collect())
        }
        Value::String(text) => {
            let text = text.replace(&site.name, "*");
            json!(text.split(' ').map(nameless).collect::<Vec<_>>().join(" "))
        }
        other => other,
    }
}

/// A word that is not the name of something that was named after a UID.
fn nameless(word: &str) -> &str {
    match word.split_once('-') {
        Some((prefix @ ("pvc" | "snapcontent"), uid)) if uid.len() == UID => prefix,
        _ => word,
    }
}

#[tokio::test]
async fn both_makes_leave_the_same_objects_and_events() {
    let Some(go) = Site::with_snapshots("alike-go").await else { return };
    let Some(theirs) = left_by(&go, Make::Go).await else { return };
    drop(go);
    let Some(site) = Site::with_snapshots("alike-ours").await else { return };
    let Some(ours) = left_by(&site, Make::Ours).await else { return };
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{ours:#}\nis not as Go's\n{theirs:#}");
    }
}
