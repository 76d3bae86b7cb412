//! A snapshotter, a snapshot controller, their driver, and objects for them.

pub(crate) mod driver;
mod lines;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::OnceCell, task::JoinSet};
use tokio_util::sync::CancellationToken;
use wharf_cluster::{Store, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use wharf_csi::DriverOptions;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_reconcile::Backoff;
use wharf_sidecars::{
    Caches,
    crds::{self, Installed},
    snapshot_controller::{SnapshotController, SnapshotControllerOptions},
    snapshotter::{Snapshotter, SnapshotterOptions},
};
use wharf_testkit::cluster::Cluster;

use self::driver::SnapshotDriver;
use crate::{
    journal::{DEADLINE, Journal},
    role,
};

pub(crate) const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
pub(crate) const CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const CONTENT_FINALIZER: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
pub(crate) const BEING_CREATED: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
pub(crate) const BEING_DELETED: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";

/// Each test uses its name as its namespace and as prefix of all its objects.
pub(crate) struct Fixture {
    pub(crate) name: &'static str,
    pub(crate) admin: Client,
    pub(crate) journal: Journal,
    pub(crate) driver: SnapshotDriver,
    pub(crate) snapshotter: SnapshotterOptions,
    pub(crate) controller: SnapshotControllerOptions,
    folder: TempDir,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    served: JoinSet<()>,
    driver_stop: CancellationToken,
}

/// The CRDs, installed once per cluster, and the results.
pub(crate) async fn installed() -> Option<&'static Vec<(&'static str, Installed)>> {
    static INSTALLED: OnceCell<Vec<(&'static str, Installed)>> = OnceCell::const_new();
    let cluster = Cluster::shared().await.unwrap()?;
    let install = || async {
        let admin = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
        let done = crds::install(&admin, DEADLINE).await.unwrap();
        crds::wait_until_served(&admin, DEADLINE).await.unwrap();
        role::grant(cluster).await;
        done
    };
    Some(INSTALLED.get_or_init(install).await)
}

impl Fixture {
    /// A driver that takes and lists snapshots. `None` without a cluster.
    pub(crate) async fn new(name: &'static str) -> Option<Self> {
        Self::with(name, &[rpc::Type::CreateDeleteSnapshot, rpc::Type::ListSnapshots]).await
    }

    /// A driver with only these `capabilities`.
    pub(crate) async fn with(name: &'static str, capabilities: &[rpc::Type]) -> Option<Self> {
        installed().await?;
        let cluster = Cluster::shared().await.unwrap()?;
        let admin = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
        let journal = Journal::new();
        let backoff = Backoff { first: Duration::from_millis(5), max: Duration::from_mins(1) };
        let mut snapshotter = SnapshotterOptions::new(format!("{name}.csi.test"));
        snapshotter.backoff = backoff;
        let controller =
            SnapshotControllerOptions { backoff, ..SnapshotControllerOptions::default() };
        let fixture = Self {
            name,
            admin,
            driver: SnapshotDriver::new(journal.clone(), capabilities),
            journal,
            snapshotter,
            controller,
            folder: tempfile::tempdir().unwrap(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            served: JoinSet::new(),
            driver_stop: CancellationToken::new(),
        };
        fixture.create("/api/v1/namespaces", "Namespace", json!({})).await;
        Some(fixture)
    }

    /// Starts the driver.
    pub(crate) fn start_driver(&mut self) {
        let (driver, socket) = (self.driver.clone(), self.socket());
        let stop = self.driver_stop.clone();
        self.served.spawn(async move { driver.serve(&socket, stop).await });
    }

    /// Starts the driver and its snapshotter.
    pub(crate) fn start_snapshotter(&mut self) {
        self.start_driver();
        self.start_snapshotter_for(&self.socket(), DEADLINE);
    }

    /// Starts the snapshotter for a running driver, with this `timeout` for calls.
    pub(crate) fn start_snapshotter_for(&mut self, socket: &Path, timeout: Duration) {
        let client = self.journal.client(&self.admin, Some(role::SNAPSHOTTER));
        let mut caches = Caches::of_all_drivers();
        if let Some(node) = &self.snapshotter.node {
            caches = caches.on_node(node);
        }
        let options = DriverOptions { hold: true, timeout, ..DriverOptions::default() };
        let driver = wharf_csi::Driver::new(socket, options);
        let options = self.snapshotter.clone();
        let snapshotter = Snapshotter::new(options, client.clone(), driver.clone(), caches.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            driver.connected(DEADLINE).await.unwrap();
            tokio::join!(caches.run(&client, &stop), snapshotter.run(stop.clone()));
        });
    }

    /// Starts a snapshot controller for the objects of this test.
    pub(crate) fn start_controller(&mut self) {
        let client = self.journal.client(&self.admin, Some(role::SNAPSHOT_CONTROLLER));
        let (name, driver) = (self.name, self.snapshotter.driver.clone());
        let mut caches = Caches::of_all_drivers();
        caches.snapshots = Store::new(move |it: &mut VolumeSnapshot| {
            it.metadata.namespace.as_deref() == Some(name)
        });
        caches.contents = Store::new(move |it: &mut VolumeSnapshotContent| {
            it.spec.volume_snapshot_ref.namespace == name
        });
        caches.snapshot_classes =
            Store::new(move |it: &mut VolumeSnapshotClass| it.driver == driver);
        let options = self.controller.clone();
        let controller = SnapshotController::new(options, client.clone(), caches.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::join!(caches.run(&client, &stop), controller.run(stop.clone()));
        });
    }

    /// Stops the controllers, and the driver too unless it is to go on.
    pub(crate) async fn stop_controllers(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.stop = CancellationToken::new();
    }

    /// Stops everything and checks that nothing failed.
    pub(crate) async fn stop(mut self) {
        self.stop_controllers().await;
        self.driver_stop.cancel();
        while let Some(ended) = self.served.join_next().await {
            ended.unwrap();
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of snapshots of this test.
    pub(crate) fn snapshots(&self) -> String {
        format!("/apis/snapshot.storage.k8s.io/v1/namespaces/{}/volumesnapshots", self.name)
    }

    /// The path of claims of this test.
    pub(crate) fn claims(&self) -> String {
        format!("/api/v1/namespaces/{}/persistentvolumeclaims", self.name)
    }

    /// Creates a class of the driver, edited by `change`.
    pub(crate) async fn class(&self, change: impl FnOnce(&mut Value)) {
        let mut class = json!({ "driver": self.snapshotter.driver, "deletionPolicy": "Delete" });
        change(&mut class);
        self.create(CLASSES, "VolumeSnapshotClass", class).await;
    }

    /// Creates a content for a snapshot of the volume `v`, edited by `change`.
    pub(crate) async fn content(&self, change: impl FnOnce(&mut Value)) {
        let mut content = json!({
            "metadata": { "finalizers": [CONTENT_FINALIZER] },
            "spec": {
                "driver": self.snapshotter.driver,
                "deletionPolicy": "Delete",
                "source": { "volumeHandle": "v" },
                "volumeSnapshotClassName": self.name,
                "volumeSnapshotRef": { "name": self.name, "namespace": self.name, "uid": "1-2" },
            },
        });
        change(&mut content);
        self.create(CONTENTS, "VolumeSnapshotContent", content).await;
    }

    /// Creates a claim and its volume with the handle `v`, bound to each other.
    pub(crate) async fn bound_claim(&self, change: impl FnOnce(&mut Value)) {
        let claim = self.claim().await;
        self.bind_claim(&claim, change).await;
    }

    /// Creates a claim that waits for its volume.
    pub(crate) async fn claim(&self) -> Value {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"],
            "volumeName": self.name,
            "storageClassName": "",
            "resources": { "requests": { "storage": "1Gi" } },
        });
        self.create(&self.claims(), "PersistentVolumeClaim", json!({ "spec": spec })).await
    }

    /// Creates its volume, edited by `change`.
    pub(crate) async fn bind_claim(&self, claim: &Value, change: impl FnOnce(&mut Value)) {
        let reference = json!({
            "name": self.name, "namespace": self.name, "uid": claim["metadata"]["uid"],
        });
        let csi = json!({ "driver": self.snapshotter.driver, "volumeHandle": "v" });
        let mut volume = json!({
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "", "claimRef": reference, "csi": csi,
            },
        });
        change(&mut volume);
        self.create(VOLUMES, "PersistentVolume", volume).await;
        self.patch_status(&self.claims(), json!({ "phase": "Bound" })).await;
    }

    /// Creates a snapshot of that claim with that class, edited by `change`.
    pub(crate) async fn snapshot(&self, change: impl FnOnce(&mut Value)) {
        let source = json!({ "persistentVolumeClaimName": self.name });
        let mut snapshot =
            json!({ "spec": { "source": source, "volumeSnapshotClassName": self.name } });
        change(&mut snapshot);
        self.create(&self.snapshots(), "VolumeSnapshot", snapshot).await;
    }

    /// Creates an object, with the name of the test unless it has one.
    pub(crate) async fn create(&self, path: &str, kind: &str, mut object: Value) -> Value {
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!(self.name);
        }
        object["kind"] = json!(kind);
        let snapshots = path.starts_with("/apis/snapshot");
        object["apiVersion"] = json!(if snapshots { "snapshot.storage.k8s.io/v1" } else { "v1" });
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

    /// Patches the status as another writer.
    pub(crate) async fn patch_status(&self, path: &str, status: Value) {
        self.patch_status_of(path, self.name, status).await;
    }

    pub(crate) async fn patch_status_of(&self, path: &str, name: &str, status: Value) {
        self.patch_at(&format!("{path}/{name}/status"), json!({ "status": status })).await;
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.delete_at(&format!("{path}/{}", self.name)).await;
    }

    pub(crate) async fn delete_at(&self, path: &str) {
        let request = Request::builder().method(Method::DELETE).uri(path).body(Vec::new()).unwrap();
        self.admin.request::<Value>(request).await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str, name: &str) -> Option<Value> {
        let request = Request::get(format!("{path}/{name}")).body(Vec::new()).unwrap();
        match self.admin.request(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            found => Some(found.unwrap()),
        }
    }

    /// The name of the content of the test's snapshot.
    pub(crate) async fn content_name(&self) -> String {
        let snapshot = self.get(&self.snapshots(), self.name).await.unwrap();
        format!("snapcontent-{}", snapshot["metadata"]["uid"].as_str().unwrap())
    }

    async fn write(&self, request: http::request::Builder, object: &Value) -> Value {
        let request = request.body(object.to_string().into_bytes()).unwrap();
        self.admin.request(request).await.unwrap()
    }
}
