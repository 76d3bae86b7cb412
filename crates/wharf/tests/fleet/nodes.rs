//! Drivers of one node each, with their own sidecars.

use std::sync::Arc;

use serde_json::json;
use wharf_csi_sdk::prelude::Topology;
use wharf_testkit::process;

use crate::{
    api::PATIENCE,
    ledger::{Door, Ledger},
    life::{CONTENTS, Life, VOLUMES},
    program::{Kind, Make, Program},
    sidecar::{Order, Sidecar},
    site::Site,
    unsettled::{TIMEOUT, command, is_marked, marked, wharf},
};

const KEY: &str = "per-node.test/node";

/// A node with its driver and its sidecars.
struct OnNode {
    name: &'static str,
    ledger: Arc<Ledger>,
    _door: Door,
    sidecars: Sidecar,
}

impl OnNode {
    async fn start(site: &Site, name: &'static str, more: &[&str]) -> Self {
        let node = json!({ "metadata": { "name": name, "labels": { KEY: name } } });
        site.api.create("/api/v1/nodes", "Node", node).await;
        let (ledger, order) = (Arc::new(Ledger::default()), site.order(Program::OnNode, None));
        let socket = order.folder.join(format!("{name}.sock"));
        let door = ledger.open_at(&site.name, &socket, Topology::new(KEY, name));
        let sidecars = Order { socket, node: Some(name), more, ..order }.start().unwrap();
        Self { name, ledger, _door: door, sidecars }
    }

    /// Sees to it that the driver was called so often: an operation that two did shows in the
    /// ledger of one of them.
    fn assert_calls(&self, rpcs: &[&str], count: usize) {
        for rpc in rpcs {
            assert_eq!(self.ledger.calls(rpc), count, "{rpc} on {}", self.name);
        }
        self.ledger.assert_single();
    }
}

/// A claim of a pod on the node, with a snapshot, that has grown; all by those of the node.
async fn live<'a>(site: &'a Site, node: &OnNode, number: usize) -> Life<'a> {
    let life = Life::begin_on(site, &format!("{}-{number}", node.name), node.name).await;
    tokio::join!(life.snapshot(), life.expand());
    let paths = life.paths().await;
    let of = |kind: &str| paths.iter().find(|path| path.starts_with(kind)).unwrap();
    let volume = site.api.get(of(VOLUMES)).await.unwrap();
    let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let place = json!({ "key": KEY, "operator": "In", "values": [node.name] });
    assert_eq!(*terms, json!([{ "matchExpressions": [place] }]));
    let content = site.api.get(of(CONTENTS)).await.unwrap();
    let label = "snapshot.storage.kubernetes.io/managed-by";
    assert_eq!(content["metadata"]["labels"][label], node.name);
    life
}

async fn end(life: Life<'_>) {
    life.delete_snapshot().await;
    life.end().await;
}

async fn wait_for_consumers(site: &Site) {
    let late = json!("WaitForFirstConsumer");
    site.remake_classes(|it| it["volumeBindingMode"] = late, |_| {}).await;
}

#[tokio::test]
async fn each_node_serves_its_own_volumes() {
    let Some(site) = Site::with_snapshots("per-node").await else { return };
    wait_for_consumers(&site).await;
    let controller = site.order(Program::One(Kind::SnapshotController, Make::Ours), None);
    let more = &["--enable-distributed-snapshotting"];
    let _controller = Order { more, ..controller }.start().unwrap();
    let [a, b] = ["per-node-a", "per-node-b"];
    let (a, b) = (OnNode::start(&site, a, &[]).await, OnNode::start(&site, b, &[]).await);

    let lives = tokio::join!(
        live(&site, &a, 1),
        live(&site, &b, 1),
        live(&site, &a, 2),
        live(&site, &b, 2)
    );
    for node in [&a, &b] {
        node.assert_calls(&["CreateVolume", "CreateSnapshot", "ControllerExpandVolume"], 2);
        node.assert_calls(&["DeleteVolume", "DeleteSnapshot"], 0);
    }
    tokio::join!(end(lives.0), end(lives.1), end(lives.2), end(lives.3));
    for node in [&a, &b] {
        node.assert_calls(&["CreateVolume", "DeleteVolume", "CreateSnapshot", "DeleteSnapshot"], 2);
        node.ledger.assert_clean();
    }
    assert_eq!(site.ledger.journal().len(), 0, "the driver of the whole cluster has no sidecars");
}

/// Marks of a provisioner that serves one node are settled as all others are, and say on which node
/// to look.
#[tokio::test]
async fn an_operator_removes_marks_of_nodes_on_the_way_back_to_go() {
    let Some(site) = Site::new("per-node-settle").await else { return };
    wait_for_consumers(&site).await;
    let mut a = OnNode::start(&site, "per-node-settle-a", TIMEOUT).await;
    let mut b = OnNode::start(&site, "per-node-settle-b", TIMEOUT).await;
    for node in [&a, &b] {
        node.ledger.hold("CreateVolume");
    }
    let stays = Life::ask_on(&site, "stays", a.name).await;
    let goes = Life::ask_on(&site, "goes", b.name).await;
    b.ledger.held().await;
    let bare = Life::ask_on(&site, "bare", b.name).await;
    for life in [&stays, &goes, &bare] {
        marked(&site, life).await;
    }
    for node in [&mut a, &mut b] {
        node.sidecars.kill().await;
        node.ledger.release();
    }
    // Somebody has removed the note, and the scheduler has moved the pod.
    let without = json!({ "wharf.dev/unsettled-volume": null });
    site.api.patch(&bare.claim(), &json!({ "metadata": { "annotations": without } })).await;
    let moved = json!({ "volume.kubernetes.io/selected-node": a.name });
    site.api.patch(&goes.claim(), &json!({ "metadata": { "annotations": moved } })).await;
    goes.delete_claim().await;

    let settle = ["sidecars", "settle", "--driver", &site.name];
    let asked = process::output(&command(&site, &settle), PATIENCE).await.unwrap();
    assert!(!asked.status.success(), "it went on without an answer");
    let listed = String::from_utf8(asked.stdout).unwrap();
    for (life, going, node) in
        [(&stays, "", a.name), (&goes, ", which is being deleted", b.name), (&bare, "", b.name)]
    {
        let name = life.claim();
        let name = name.rsplit('/').next().unwrap();
        let told = format!(
            "claim {site}/{name}{going}\n  driver {site} may have volume {volume}, and no PersistentVolume names it\n  \
             asked for on node {node}\n",
            site = site.name,
            volume = life.volume(),
        );
        assert!(listed.contains(&told), "{told} is not in {listed}");
    }
    wharf(&site, &[&settle[..], &["--yes"]].concat()).await;
    site.api.gone(&goes.claim()).await;
    for life in [&stays, &bare] {
        let claim = site.api.get(&life.claim()).await.unwrap();
        assert!(!is_marked(&claim), "{claim:#}");
        assert!(claim["metadata"]["annotations"]["wharf.dev/unsettled-volume"].is_null());
    }
    // Claims that stay are served by whoever serves their node.
    for node in [&mut a, &mut b] {
        node.sidecars.start_again();
    }
    for life in [stays, bare] {
        life.bind().await;
        life.end().await;
    }
    a.ledger.assert_clean();
    // It was told of.
    assert_eq!(b.ledger.volumes(), 1);
}

/// A note that names the PersistentVolume of another claim hides nothing.
#[tokio::test]
async fn a_note_with_the_volume_of_another_claim_is_not_believed() {
    let Some(site) = Site::new("per-node-note").await else { return };
    wait_for_consumers(&site).await;
    let node = OnNode::start(&site, "per-node-note-a", TIMEOUT).await;
    let other = Life::begin_on(&site, "other", node.name).await;
    node.ledger.hold("CreateVolume");
    let life = Life::ask_on(&site, "data", node.name).await;
    marked(&site, &life).await;
    let mut node = node;
    node.sidecars.kill().await;
    let note = json!({ "volume": other.volume() }).to_string();
    let annotations = json!({ "wharf.dev/unsettled-volume": note });
    site.api.patch(&life.claim(), &json!({ "metadata": { "annotations": annotations } })).await;
    let settle = ["sidecars", "settle", "--driver", &site.name];
    let asked = process::output(&command(&site, &settle), PATIENCE).await.unwrap();
    let listed = String::from_utf8(asked.stdout).unwrap();
    assert!(listed.contains("and no PersistentVolume names it"), "{listed}");
    assert!(!listed.contains("nothing is left over"), "{listed}");
}
