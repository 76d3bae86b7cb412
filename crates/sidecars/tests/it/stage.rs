//! The setup of all controller tests: a cluster, a driver, and a journal of requests.

use std::path::PathBuf;

use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_testkit::cluster::Cluster;

use crate::{driver::Driver, journal::Journal, role};

pub(crate) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
pub(crate) const NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";

/// Each test uses its name as a prefix of all its objects.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) admin: Client,
    /// The controller's client.
    pub(crate) wire: Client,
    pub(crate) journal: Journal,
    pub(crate) driver: Driver,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
    folder: TempDir,
    driver_stop: CancellationToken,
    served: JoinSet<()>,
}

impl Stage {
    /// A stage whose driver has only these `capabilities`. `None` without a cluster.
    pub(crate) async fn new(name: &'static str, capabilities: &[rpc::Type]) -> Option<Self> {
        let cluster = Cluster::shared().await.unwrap()?;
        role::grant(cluster).await;
        let admin = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
        let journal = Journal::brief();
        Some(Self {
            name,
            wire: admin.clone(),
            admin,
            driver: Driver::new(journal.clone(), capabilities),
            journal,
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            folder: tempfile::tempdir().unwrap(),
            driver_stop: CancellationToken::new(),
            served: JoinSet::new(),
        })
    }

    pub(crate) fn start_driver(&mut self) {
        let (driver, socket) = (self.driver.clone(), self.socket());
        self.driver_stop = CancellationToken::new();
        let stop = self.driver_stop.clone();
        self.served.spawn(async move { driver.serve(&socket, stop).await });
    }

    /// Stops the driver and starts it again.
    pub(crate) async fn restart_driver(&mut self) {
        self.driver_stop.cancel();
        self.served.join_next().await.unwrap().unwrap();
        self.start_driver();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    /// Stops the controller, so that another can be started.
    pub(crate) async fn stop_controller(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.stop = CancellationToken::new();
    }

    /// Stops everything and checks that nothing failed.
    pub(crate) async fn end(mut self) {
        self.stop_controller().await;
        self.driver_stop.cancel();
        while let Some(ended) = self.served.join_next().await {
            ended.unwrap();
        }
    }

    pub(crate) async fn create(&self, path: &str, kind: &str, mut object: Value) -> Value {
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(match path.strip_prefix("/apis/") {
            Some(path) => path.splitn(3, '/').take(2).collect::<Vec<_>>().join("/"),
            None => "v1".to_owned(),
        });
        self.write(Request::post(path), &object).await
    }

    /// Sends a merge patch as another writer.
    pub(crate) async fn patch(&self, path: &str, patch: Value) {
        self.patch_at(&format!("{path}/{}", self.name), patch).await;
    }

    /// Sends it for an object of another name, or for a subresource.
    pub(crate) async fn patch_at(&self, path: &str, patch: Value) {
        let request = Request::patch(path).header("content-type", "application/merge-patch+json");
        self.write(request, &patch).await;
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.delete_at(&format!("{path}/{}", self.name)).await;
    }

    pub(crate) async fn delete_at(&self, path: &str) {
        let request = Request::delete(path).body(Vec::new()).unwrap();
        self.admin.request::<Value>(request).await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        self.get_at(&format!("{path}/{}", self.name)).await
    }

    pub(crate) async fn get_at(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        match self.admin.request(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            found => Some(found.unwrap()),
        }
    }

    async fn write(&self, request: http::request::Builder, object: &Value) -> Value {
        let request = request.body(object.to_string().into_bytes()).unwrap();
        self.admin.request(request).await.unwrap()
    }
}
