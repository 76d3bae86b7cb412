//! A node of a real cluster, with wharf's CSI handler.

use std::{
    collections::BTreeMap,
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::Node,
    storage::v1::{CSINode, CSINodeDriver},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use wharf_proto::csi::{NodeGetInfoResponse, Topology};
use wharf_registration::{
    csi::{
        CsiHandler, CsiOptions,
        node::{ApiObjects, NodeRecord, RecordOptions},
    },
    manager::{Plugin, PluginHandler, PluginRefusal},
};
use wharf_testkit::{
    cluster::Cluster,
    csi_driver::{DriverScript, ScriptedDriver},
    process::wait_for,
};

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
/// Longer than any test that is not about the grace period.
pub(crate) const LONG_GRACE: Duration = Duration::from_secs(600);

/// Drivers, their sockets, and the handler that registers them for one Node.
pub(crate) struct TestNode {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) handler: Arc<CsiHandler>,
    pub(crate) record: NodeRecord,
    folder: TempDir,
}

/// A CSI driver that listens, and the plugin of its registration socket.
pub(crate) struct TestDriver {
    pub(crate) driver: ScriptedDriver,
    pub(crate) plugin: Plugin,
}

impl TestNode {
    /// Makes the Node object, and a handler for it.
    pub(crate) async fn start(cluster: &Cluster, name: &str, grace: Duration) -> Self {
        let client = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
        create_node(&client, name).await;
        Self::on(client, name, grace)
    }

    /// A handler for a Node that need not exist.
    pub(crate) fn on(client: Client, name: &str, grace: Duration) -> Self {
        let objects = ApiObjects::new(client.clone(), name);
        let options = RecordOptions { grace, patience: DEADLINE };
        let record = NodeRecord::start(Arc::new(objects), options);
        let handler = Arc::new(CsiHandler::new(record.clone(), CsiOptions::default()));
        let folder = tempfile::tempdir().unwrap();
        Self { name: name.to_owned(), client, handler, record, folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A driver that listens on its own socket; `instance` distinguishes drivers of one name.
    pub(crate) fn driver(
        &self,
        name: &str,
        instance: u8,
        script: impl FnOnce(&mut DriverScript),
    ) -> TestDriver {
        let mut scripted = DriverScript::new(name);
        script(&mut scripted);
        let endpoint = self.path(&format!("{name}-{instance}.sock"));
        let plugin = Plugin {
            kind: "CSIPlugin".to_owned(),
            name: name.to_owned(),
            endpoint: endpoint.display().to_string(),
            versions: vec!["1.0.0".to_owned()],
            socket: self.path(&format!("{name}-{instance}-reg.sock")),
        };
        TestDriver { driver: ScriptedDriver::serve(&endpoint, scripted), plugin }
    }

    pub(crate) async fn register(&self, driver: &TestDriver) -> Result<(), PluginRefusal> {
        self.handler.validate(&driver.plugin).await?;
        self.handler.register(&driver.plugin).await
    }

    pub(crate) async fn deregister(&self, driver: &TestDriver) {
        self.handler.deregister(&driver.plugin).await;
    }

    pub(crate) async fn node(&self) -> Node {
        Api::<Node>::all(self.client.clone()).get(&self.name).await.unwrap()
    }

    pub(crate) async fn labels(&self) -> BTreeMap<String, String> {
        self.node().await.metadata.labels.unwrap_or_default()
    }

    /// The annotation with the node IDs.
    pub(crate) async fn ids(&self) -> Option<Value> {
        let annotations = self.node().await.metadata.annotations.unwrap_or_default();
        let ids = annotations.get("csi.volume.kubernetes.io/nodeid")?;
        Some(serde_json::from_str(ids).unwrap())
    }

    pub(crate) async fn csi_node(&self) -> Option<CSINode> {
        Api::<CSINode>::all(self.client.clone()).get_opt(&self.name).await.unwrap()
    }

    pub(crate) async fn entries(&self) -> Vec<CSINodeDriver> {
        self.csi_node().await.map(|it| it.spec.drivers).unwrap_or_default()
    }

    /// Names in the CSINode, sorted.
    pub(crate) async fn listed(&self) -> Vec<String> {
        let mut names: Vec<_> = self.entries().await.into_iter().map(|it| it.name).collect();
        names.sort();
        names
    }

    pub(crate) async fn wait_listed(&self, expected: &[&str]) {
        eventually(&format!("CSINode {} to list {expected:?}", self.name), || async {
            self.listed().await == expected
        })
        .await;
    }

    pub(crate) async fn patch_node(&self, patch: &Value) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(patch);
        nodes.patch(&self.name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// A driver's answer to `NodeGetInfo`.
pub(crate) fn node_info(id: &str, max: i64, topology: &[(&str, &str)]) -> NodeGetInfoResponse {
    let segments = topology.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    NodeGetInfoResponse {
        node_id: id.to_owned(),
        max_volumes_per_node: max,
        accessible_topology: Some(Topology { segments }),
    }
}

pub(crate) async fn create_node(client: &Client, name: &str) {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
    let node: Node = serde_json::from_value(node).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
}

pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, probe: impl Fn() -> F) {
    wait_for(DEADLINE, what, || async { probe().await.then_some(()) }).await.unwrap();
}

/// Whether a file contains a text; false for a missing file.
pub(crate) fn holds(file: &Path, text: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|contents| contents.contains(text))
}
