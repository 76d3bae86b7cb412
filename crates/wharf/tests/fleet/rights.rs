//! Each verb that the roles of deploy/ grant is used, by our programs or by Go's, and none is
//! missing.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wharf_csi_sdk::prelude::Topology;
use wharf_testkit::{
    cluster::Cluster,
    deploy::{self, CONTROLLERS},
    process::wait_for,
};

use crate::{
    api::PATIENCE,
    audit,
    life::{Life, VOLUMES},
    not_served::declare_groups,
    program::{Kind, Make, Program},
    secrets,
    sidecar::{Order, Sidecar},
    site::Site,
    upstream_roles,
};

/// Where the driver's volumes are.
const KEY: &str = "rights.test/zone";

/// Calls that are refused at first, in the order in which a life needs them.
const REFUSED: [&str; 3] = ["CreateVolume", "CreateSnapshot", "ControllerExpandVolume"];

/// A verb, and what it is done to, as `resource.group`.
type Right = (String, String);

/// Rights that this test has no use for, and why a role has them all the same. Upstream's manifests
/// grant each of them.
const ELSEWHERE: &[(&str, &[&str], &str, &str)] = &[
    ("provisioner", &["get"], "pods", "the owner of capacity objects is found by its pod"),
    ("provisioner", &["get"], "replicasets.apps", "the owner of capacity objects may be above it"),
    (
        "provisioner",
        &["get", "list", "watch", "create", "update", "patch", "delete"],
        "csistoragecapacities.storage.k8s.io",
        "only with --enable-capacity",
    ),
    ("provisioner", &["list"], CONTENTS, GO),
    ("provisioner", &["watch"], "volumesnapshots.snapshot.storage.k8s.io", GO),
    ("snapshotter", &["patch"], "events", "only for events that are repeated"),
    ("snapshotter", &["update"], CONTENTS, GO),
    ("snapshot-controller", &["patch"], "events", "only for events that are repeated"),
    ("snapshot-controller", &["update"], CONTENTS, GO),
    (
        "snapshot-controller",
        &["patch"],
        "volumesnapshotcontents/status.snapshot.storage.k8s.io",
        GO,
    ),
];
const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
const GO: &str = "the Go programs may need it elsewhere";

/// All that a controller's roles grant.
fn granted(controller: &str) -> BTreeSet<Right> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
    };
    let mut granted = BTreeSet::new();
    for role in deploy::roles(controller, "default", &[]).unwrap() {
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let what = named(&resource, &group);
                    granted.extend(texts(&rule["verbs"]).into_iter().map(|it| (it, what.clone())));
                }
            }
        }
    }
    granted
}

/// `resource.group`, as RBAC messages write it.
pub(crate) fn named(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// What roles grant in vain. A kind that is watched may also be listed and read, for servers that
/// do not stream lists and after conflicts.
fn unused(controller: &str, granted: &BTreeSet<Right>, used: &BTreeSet<Right>) -> Vec<String> {
    let is_watched = |what: &String| used.contains(&("watch".to_owned(), what.clone()));
    let is_used = |right: &Right| {
        let reads = ["get", "list"].contains(&right.0.as_str()) && is_watched(&right.1);
        reads || used.contains(right)
    };
    let is_known = |(verb, what): &Right| {
        ELSEWHERE.iter().any(|(of, verbs, resource, _)| {
            *of == controller && verbs.contains(&verb.as_str()) && resource == what
        })
    };
    let unused = granted.iter().filter(|right| !is_used(right) && !is_known(right));
    unused.map(|(verb, what)| format!("{controller}: {verb} {what}")).collect()
}

/// Starts one of each kind, which stand for election; `None` where there is no such program of Go.
fn start(site: &Site, make: Make, socket: &std::path::Path) -> Option<Vec<Sidecar>> {
    let start = |kind| {
        // There may be no attacher of Go.
        let make = if kind == Kind::Attacher { Make::Ours } else { make };
        let order = site.order(Program::One(kind, make), Some(Site::host(make)));
        let order = match kind {
            Kind::Provisioner => Order { socket: socket.to_owned(), ..order },
            Kind::SnapshotController => {
                Order { more: &["--enable-distributed-snapshotting"], ..order }
            }
            _ => order,
        };
        order.start()
    };
    Kind::ALL.into_iter().map(start).collect()
}

/// Answers calls again that were refused often enough for events to be repeated.
async fn bring_back(site: &Site) {
    for rpc in REFUSED {
        let before = site.ledger.calls(rpc);
        let refused = async || (site.ledger.calls(rpc) >= before + 3).then_some(());
        wait_for(PATIENCE, rpc, refused).await.unwrap();
        site.ledger.bring_back(rpc);
    }
}

/// A volume of an in-tree plugin, which controllers say on the volume that they do not serve.
async fn in_tree_volume(site: &Site) -> String {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Gi" },
        "persistentVolumeReclaimPolicy": "Retain",
        "cinder": { "volumeID": "v" },
    });
    let metadata = json!({
        "name": "in-tree", "annotations": { "pv.kubernetes.io/migrated-to": site.name },
    });
    let volume = json!({ "metadata": metadata, "spec": spec });
    site.api.create(VOLUMES, "PersistentVolume", volume).await;
    format!("{VOLUMES}/in-tree")
}

/// Waits until a controller has used a right.
async fn uses(site: &Site, controller: &str, verb: &str, what: &str) {
    let right = (verb.to_owned(), what.to_owned());
    let used = async || audit::rights(site, controller).contains(&right).then_some(());
    wait_for(PATIENCE, &format!("{controller} to {verb} {what}"), used).await.unwrap();
}

/// What only our programs do: others stand by, and say what they do not serve.
async fn live_as_ours(site: &Site) {
    let volume = in_tree_volume(site).await;
    let standbys = Kind::ALL
        .map(|kind| site.order(Program::One(kind, Make::Ours), Some("standby")).start().unwrap());
    for controller in CONTROLLERS {
        uses(site, controller, "watch", "leases.coordination.k8s.io").await;
    }
    uses(site, "attacher", "create", "events").await;
    for mut standby in standbys {
        standby.stop().await;
    }
    site.api.delete(&volume).await;
    site.api.unprotect(&volume, "kubernetes.io/pv-protection").await;
    let life = Life::begin_with_attributes(site, "attributes").await;
    life.end().await;
}

/// Other tests must not use rights in place of this one, so the cluster is its own.
#[tokio::test]
async fn roles_grant_what_is_used_and_nothing_else() {
    static OWN: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let Some(site) = Site::on(&OWN, "rights").await else { return };
    declare_groups(&site).await;
    secrets::declare(&site).await;
    let driver = json!({ "name": site.name, "nodeID": "placed", "topologyKeys": [KEY] });
    let node = json!({ "metadata": { "name": "placed" }, "spec": { "drivers": [driver] } });
    site.api.create("/apis/storage.k8s.io/v1/csinodes", "CSINode", node).await;
    let node = json!({ "metadata": { "name": "placed", "labels": { KEY: "a" } } });
    site.api.create("/api/v1/nodes", "Node", node).await;
    let socket = site.order(Program::Combined, None).folder.join("placed.sock");
    let _door = site.ledger.open_at(&site.name, &socket, Topology::new(KEY, "a"));
    for make in [Make::Ours, Make::Go] {
        if make == Make::Go {
            // It does not know all keys of secrets.
            site.remake_classes(|_| {}, |_| {}).await;
        }
        let Some(fleet) = start(&site, make, &socket) else { return };
        if make == Make::Ours {
            live_as_ours(&site).await;
        }
        for rpc in REFUSED {
            site.ledger.take_down(rpc);
        }
        let name = format!("{make:?}").to_lowercase();
        tokio::join!(Life::whole(&site, &name), bring_back(&site));
        for mut sidecar in fleet {
            sidecar.stop().await;
        }
    }
    site.ledger.assert_clean();
    audit::assert_allowed(&site);
    let mut unneeded = Vec::new();
    for controller in CONTROLLERS {
        let used = audit::rights(&site, controller);
        unneeded.extend(unused(controller, &granted(controller), &used));
        for (_, verbs, what, reason) in ELSEWHERE.iter().filter(|(of, ..)| *of == controller) {
            for verb in *verbs {
                let right = ((*verb).to_owned(), (*what).to_owned());
                assert!(granted(controller).contains(&right), "{right:?} is gone: {reason}");
                let is_upstream = upstream_roles::grants(controller, verb, what);
                assert!(is_upstream, "upstream does not grant {verb} {what} to {controller}");
            }
        }
    }
    assert!(unneeded.is_empty(), "granted and not used: {unneeded:#?}");
}
