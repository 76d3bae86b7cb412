//! Objects that ask for features which are not built: reported once on each, counted, and no
//! obstacle to others.

use std::path::PathBuf;

use serde_json::{Value, json};
use wharf_csi_sdk::prelude::Topology;
use wharf_testkit::process::wait_for;

use crate::{
    api::PATIENCE,
    life::VOLUMES,
    program::{Kind, Make, Program},
    readiness::Shown,
    role::EVENTLESS,
    sidecar::{Order, Sidecar},
    site::Site,
};

const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUPS: &str = "/apis/groupsnapshot.storage.k8s.io/v1beta1";

/// The events that say that an object is not served.
async fn events(site: &Site, namespace: &str, object: &Value) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let all = site.api.get(&path).await.unwrap();
    let of = |event: &&Value| {
        event["reason"] == "NotServed"
            && event["involvedObject"]["uid"] == object["metadata"]["uid"]
    };
    all["items"].as_array().unwrap().iter().filter(of).cloned().collect()
}

/// Waits until an object has its event, and gives it.
async fn told(site: &Site, namespace: &str, object: &Value) -> Value {
    let found = async || events(site, namespace, object).await.pop();
    wait_for(PATIENCE, "an event NotServed", found).await.unwrap()
}

/// Waits until the metrics have a line.
async fn shows(shown: &Shown, line: &str) {
    let found = async || shown.get("/metrics").1.lines().any(|it| it == line).then_some(());
    if let Err(error) = wait_for(PATIENCE, line, found).await {
        panic!("{error}: {}", shown.get("/metrics").1);
    }
}

fn unserved(controller: &str, kind: &str, reason: &str, count: usize) -> String {
    let labels = format!("controller=\"{controller}\",kind=\"{kind}\",reason=\"{reason}\"");
    format!("wharf_sidecars_unserved_objects{{{labels}}} {count}")
}

async fn volume(site: &Site, name: &str, source: &str, value: Value) -> Value {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Gi" },
        "persistentVolumeReclaimPolicy": "Retain",
        source: value,
    });
    let volume = json!({ "metadata": { "name": name }, "spec": spec });
    site.api.create(VOLUMES, "PersistentVolume", volume).await
}

async fn attach(site: &Site, driver: &str, volume: &str) -> String {
    let source = json!({ "persistentVolumeName": volume });
    let spec = json!({ "attacher": driver, "nodeName": driver, "source": source });
    let attachment = json!({ "metadata": { "name": volume }, "spec": spec });
    site.api.create(ATTACHMENTS, "VolumeAttachment", attachment).await;
    format!("{ATTACHMENTS}/{volume}")
}

/// The name of a volume that a driver has made for a claim.
async fn provisioned(site: &Site, driver: &str) -> String {
    let class = json!({ "metadata": { "name": driver }, "provisioner": driver });
    site.api.create("/apis/storage.k8s.io/v1/storageclasses", "StorageClass", class).await;
    let claim = claim(site, "served", driver, driver).await;
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
    site.api.wait(&format!("{VOLUMES}/{name}"), |_| true).await;
    name
}

/// A claim that was given to a driver.
async fn claim(site: &Site, name: &str, class: &str, driver: &str) -> Value {
    let annotations = json!({ "volume.kubernetes.io/storage-provisioner": driver });
    let claim = json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    site.api.create(&claims(site), "PersistentVolumeClaim", claim).await
}

fn claims(site: &Site) -> String {
    format!("/api/v1/namespaces/{}/persistentvolumeclaims", site.name)
}

#[tokio::test]
async fn a_volume_of_an_in_tree_plugin_is_told_once_and_others_are_served() {
    let Some(site) = Site::new("in-tree").await else { return };
    let driver = "cinder.csi.openstack.org";
    let node = json!({
        "metadata": { "name": driver },
        "spec": { "drivers": [{ "name": driver, "nodeID": "n" }] },
    });
    site.api.create("/apis/storage.k8s.io/v1/csinodes", "CSINode", node).await;
    let in_tree = volume(&site, "in-tree", "cinder", json!({ "volumeID": "v" })).await;
    let order = site.order(Program::Combined, None);
    let socket = order.folder.join("cinder.sock");
    let _door = site.ledger.open(driver, &socket);
    let [attacher, provisioner, resizer] = [Shown::new(), Shown::new(), Shown::new()];
    let start = |kind, shown: &Shown, user: Option<&'static str>| {
        let order = site.order(Program::One(kind, Make::Ours), None);
        let more = ["--http-endpoint", shown.0.as_str()];
        let (socket, user) = (socket.clone(), user.unwrap_or(order.user));
        Order { socket, user, more: &more, ..order }.start().unwrap()
    };
    // The role that a chart has for Go's attacher grants no events.
    let mut attaching = start(Kind::Attacher, &attacher, Some(EVENTLESS));
    shows(&attacher, &unserved("attacher", "PersistentVolume", "InTreeVolume", 1)).await;
    assert_eq!(events(&site, "default", &in_tree).await.len(), 0);
    let mut others =
        [start(Kind::Provisioner, &provisioner, None), start(Kind::Resizer, &resizer, None)];
    shows(&provisioner, &unserved("provisioner", "PersistentVolume", "InTreeVolume", 1)).await;
    shows(&resizer, &unserved("resizer", "PersistentVolume", "InTreeVolume", 1)).await;
    let event = told(&site, "default", &in_tree).await;
    assert_eq!((&event["type"], &event["count"]), (&json!("Warning"), &json!(1)));
    let message = event["message"].as_str().unwrap();
    for part in ["kubernetes.io/cinder", driver, "not attached", "Run the upstream sidecars"] {
        assert!(message.contains(part), "{message}");
    }

    let refused = attach(&site, driver, "in-tree").await;
    let has_error = |it: &Value| {
        let error = it["status"]["attachError"]["message"].as_str().unwrap_or_default();
        error.contains("in-tree volumes are not translated here")
    };
    site.api.wait(&refused, has_error).await;
    let left_alone = site.api.get(&format!("{VOLUMES}/in-tree")).await.unwrap();
    let finalizers = left_alone["metadata"]["finalizers"].to_string();
    assert!(!finalizers.contains("attacher"), "{finalizers}");

    let served = provisioned(&site, driver).await;
    let served = attach(&site, driver, &served).await;
    site.api.wait(&served, |it| it["status"]["attached"] == true).await;

    let (code, reasons) = attacher.get("/readyz");
    assert_eq!(code, "200", "a right that nobody needs is not missing: {reasons}");
    assert_eq!(events(&site, "default", &in_tree).await.len(), 1);
    for path in [&refused, &served] {
        site.api.delete(path).await;
        site.api.gone(path).await;
    }
    let path = format!("{VOLUMES}/in-tree");
    site.api.delete(&path).await;
    site.api.unprotect(&path, "kubernetes.io/pv-protection").await;
    shows(&attacher, &unserved("attacher", "PersistentVolume", "InTreeVolume", 0)).await;
    attaching.stop().await;
    for sidecar in &mut others {
        sidecar.stop().await;
    }
}

/// Declares a kind of group snapshots in one version, and waits until it is served.
async fn declare(site: &Site, kind: &str, scope: &str) {
    let plural = format!("{}s", kind.to_lowercase());
    let name = format!("{plural}.groupsnapshot.storage.k8s.io");
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let crd = json!({
        "metadata": {
            "name": name,
            "annotations": { "api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter" },
        },
        "spec": {
            "group": "groupsnapshot.storage.k8s.io",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "scope": scope,
            "versions": [{
                "name": "v1beta1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    site.api.create(CRDS, "CustomResourceDefinition", crd).await;
    let listed = async || site.api.get(&format!("{GROUPS}/{plural}")).await.map(drop);
    wait_for(PATIENCE, &name, listed).await.unwrap();
}

/// Declares the kinds of group snapshots that controllers look for.
pub(crate) async fn declare_groups(site: &Site) {
    declare(site, "VolumeGroupSnapshot", "Namespaced").await;
    declare(site, "VolumeGroupSnapshotContent", "Cluster").await;
}

#[tokio::test]
async fn group_snapshots_are_told_once_in_whichever_version_they_are() {
    let Some(site) = Site::with_snapshots("group-snapshots").await else { return };
    declare_groups(&site).await;
    let groups = format!("{GROUPS}/namespaces/{}/volumegroupsnapshots", site.name);
    let early = json!({ "metadata": { "name": "early" } });
    let early = site.api.create(&groups, "VolumeGroupSnapshot", early).await;
    let [controller, snapshotter] = [Shown::new(), Shown::new()];
    let start = |kind, shown: &Shown| {
        let more = ["--http-endpoint", shown.0.as_str()];
        let order = site.order(Program::One(kind, Make::Ours), None);
        Order { more: &more, ..order }.start().unwrap()
    };
    let mut sidecars =
        [start(Kind::SnapshotController, &controller), start(Kind::Snapshotter, &snapshotter)];
    let event = told(&site, &site.name, &early).await;
    assert_eq!(event["involvedObject"]["apiVersion"], "groupsnapshot.storage.k8s.io/v1beta1");
    assert!(event["message"].as_str().unwrap().contains("CSIVolumeGroupSnapshot"), "{event}");
    let late = json!({ "metadata": { "name": "late" } });
    let late = site.api.create(&groups, "VolumeGroupSnapshot", late).await;
    told(&site, &site.name, &late).await;
    let count =
        |count| unserved("snapshot-controller", "VolumeGroupSnapshot", "GroupSnapshot", count);
    shows(&controller, &count(2)).await;
    site.api.delete(&format!("{groups}/late")).await;
    shows(&controller, &count(1)).await;

    let contents = format!("{GROUPS}/volumegroupsnapshotcontents");
    let count =
        |count| unserved("snapshotter", "VolumeGroupSnapshotContent", "GroupSnapshot", count);
    shows(&snapshotter, &count(0)).await;
    for (name, driver) in [("own", site.name.as_str()), ("foreign", "another.example.com")] {
        let content = json!({ "metadata": { "name": name }, "spec": { "driver": driver } });
        let kind = "VolumeGroupSnapshotContent";
        let content = site.api.create(&contents, kind, content).await;
        if name == "own" {
            told(&site, "default", &content).await;
        }
    }
    shows(&snapshotter, &count(1)).await;
    for sidecar in &mut sidecars {
        sidecar.stop().await;
    }
    for plural in ["volumegroupsnapshots", "volumegroupsnapshotcontents"] {
        site.api.delete(&format!("{CRDS}/{plural}.groupsnapshot.storage.k8s.io")).await;
    }
}

const KEY: &str = "not-served.test/node";

/// The sidecars of one node.
fn on_node(site: &Site, node: &'static str, shown: &Shown) -> (Sidecar, crate::ledger::Door) {
    let order = site.order(Program::OnNode, None);
    let socket: PathBuf = order.folder.join(format!("{node}.sock"));
    let door = site.ledger.open_at(&site.name, &socket, Topology::new(KEY, node));
    let more = ["--http-endpoint", shown.0.as_str()];
    (Order { socket, node: Some(node), more: &more, ..order }.start().unwrap(), door)
}

#[tokio::test]
async fn a_claim_that_binds_immediately_is_told_once_by_all_nodes() {
    let Some(site) = Site::new("immediate").await else { return };
    let [a, b] = [Shown::new(), Shown::new()];
    let mut nodes = [on_node(&site, "immediate-a", &a), on_node(&site, "immediate-b", &b)];
    let own = claim(&site, "data", &site.name, &site.name).await;
    let count = |count| unserved("provisioner", "PersistentVolumeClaim", "ImmediateBinding", count);
    shows(&a, &count(1)).await;
    shows(&b, &count(1)).await;
    let event = told(&site, &site.name, &own).await;
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("WaitForFirstConsumer"), "{message}");
    // Both have tried to write it by the time that both have written that of another claim.
    let other = claim(&site, "other", &site.name, &site.name).await;
    shows(&a, &count(2)).await;
    shows(&b, &count(2)).await;
    told(&site, &site.name, &other).await;
    assert_eq!(events(&site, &site.name, &own).await.len(), 1);
    for name in ["data", "other"] {
        site.api.delete(&format!("{}/{name}", claims(&site))).await;
    }
    shows(&a, &count(0)).await;
    shows(&b, &count(0)).await;
    for (sidecar, _) in &mut nodes {
        sidecar.stop().await;
    }
    assert_eq!(site.ledger.calls("CreateVolume"), 0);
}
