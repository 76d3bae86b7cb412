//! Drivers of one node each, with their own sidecars beside them.

use std::sync::Arc;

use serde_json::json;
use wharf_csi_sdk::prelude::Topology;

use crate::ledger::{Door, Ledger};
use crate::life::{CONTENTS, Life, VOLUMES};
use crate::program::{Kind, Make, Program};
use crate::sidecar::{Order, Sidecar};
use crate::site::Site;

const KEY: &str = "per-node.test/node";

/// A node with its driver and its sidecars.
struct OnNode {
    name: &'static str,
    ledger: Arc<Ledger>,
    _door: Door,
    _sidecars: Sidecar,
}

impl OnNode {
    async fn start(site: &Site, name: &'static str) -> Self {
        let node = json!({ "metadata": { "name": name, "labels": { KEY: name } } });
        site.api.create("/api/v1/nodes", "Node", node).await;
        let (ledger, order) = (Arc::new(Ledger::default()), site.order(Program::OnNode, None));
        let socket = order.folder.join(format!("{name}.sock"));
        let door = ledger.open_at(&site.name, &socket, Topology::new(KEY, name));
        let sidecars = Order { socket, node: Some(name), ..order }.start().unwrap();
        Self { name, ledger, _door: door, _sidecars: sidecars }
    }

    /// Sees to it that the driver was called so often: an operation that two did shows in the ledger of one of them.
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

#[tokio::test]
async fn each_node_serves_its_own_volumes() {
    let Some(site) = Site::with_snapshots("per-node").await else { return };
    let late = json!("WaitForFirstConsumer");
    site.remake_classes(|it| it["volumeBindingMode"] = late, |_| {}).await;
    let controller = site.order(Program::One(Kind::SnapshotController, Make::Ours), None);
    let more = &["--enable-distributed-snapshotting"];
    let _controller = Order { more, ..controller }.start().unwrap();
    let [a, b] = ["per-node-a", "per-node-b"];
    let (a, b) = (OnNode::start(&site, a).await, OnNode::start(&site, b).await);

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
