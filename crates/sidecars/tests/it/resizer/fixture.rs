//! A resizer, its driver, and objects for them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{EventRecorder, Events};
use wharf_csi::DriverOptions;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_reconcile::Backoff;
use wharf_sidecars::{
    Caches,
    resizer::{Resizer, ResizerError, ResizerOptions},
};
use wharf_testkit::cluster::Cluster;

use super::driver::{Driver, DriverCapabilities};
use crate::{
    journal::{DEADLINE, Journal},
    role,
};

pub(crate) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const GI: i64 = 1 << 30;

/// Each test uses its name as a prefix of all its objects.
pub(crate) struct Fixture {
    pub(crate) name: &'static str,
    pub(crate) admin: Client,
    pub(crate) journal: Journal,
    /// Writes of events, kept apart because tests do not wait for them.
    events: Journal,
    pub(crate) driver: Driver,
    pub(crate) options: ResizerOptions,
    /// Whether the caches drop objects of other drivers, as those of a sidecar do.
    pub(crate) one_driver: bool,
    folder: TempDir,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    driver_stop: CancellationToken,
    served: JoinSet<()>,
}

impl Fixture {
    /// A driver that expands volumes without the node. `None` without a cluster.
    pub(crate) async fn new(name: &'static str) -> Option<Self> {
        let controller = vec![rpc::Type::ExpandVolume];
        Self::with(name, DriverCapabilities { controller, ..DriverCapabilities::default() }).await
    }

    /// A driver that needs the node as well.
    pub(crate) async fn with_node(name: &'static str) -> Option<Self> {
        let controller = vec![rpc::Type::ExpandVolume];
        Self::with(
            name,
            DriverCapabilities { controller, on_node: true, ..DriverCapabilities::default() },
        )
        .await
    }

    pub(crate) async fn with(name: &'static str, capabilities: DriverCapabilities) -> Option<Self> {
        let cluster = Cluster::shared().await.unwrap()?;
        role::grant(cluster).await;
        let admin = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
        let journal = Journal::new();
        let mut options = ResizerOptions::new(format!("{name}.csi.test"));
        options.backoff = Backoff { first: Duration::from_millis(5), ..options.backoff };
        Some(Self {
            name,
            admin,
            driver: Driver::new(journal.clone(), capabilities),
            journal,
            events: Journal::new(),
            options,
            one_driver: false,
            folder: tempfile::tempdir().unwrap(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            driver_stop: CancellationToken::new(),
            served: JoinSet::new(),
        })
    }

    /// Starts the driver and the resizer.
    pub(crate) async fn start(&mut self) {
        self.start_with_timeout(DEADLINE).await;
    }

    /// Starts both, with this `timeout` for calls of the driver.
    pub(crate) async fn start_with_timeout(&mut self, timeout: Duration) {
        self.start_driver();
        self.start_resizer(&self.socket(), timeout).await.unwrap();
    }

    /// Starts the driver and returns why no resizer can be created.
    pub(crate) async fn refusal(&mut self) -> ResizerError {
        self.start_driver();
        self.start_resizer(&self.socket(), DEADLINE).await.unwrap_err()
    }

    /// Starts the resizer for a running driver.
    pub(crate) async fn start_resizer(
        &mut self,
        socket: &Path,
        timeout: Duration,
    ) -> Result<(), ResizerError> {
        let client = self.journal.client(&self.admin, Some(role::RESIZER));
        let component = format!("external-resizer {}", self.options.driver);
        let sink = self.events.client(&self.admin, Some(role::RESIZER));
        let (events, writer) = Events::new(EventRecorder::new(sink, component, ""));
        let caches = match self.one_driver {
            true => Caches::of(&self.options.driver),
            false => Caches::of_all_drivers(),
        };
        let options = DriverOptions { hold: true, timeout, ..DriverOptions::default() };
        let driver = wharf_csi::Driver::new(socket, options);
        driver.connected(DEADLINE).await.unwrap();
        let options = self.options.clone();
        let resizer = Resizer::new(options, client.clone(), driver, caches.clone(), events).await?;
        // Requests before the work begins are not part of the journal.
        self.journal.clear();
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::join!(
                caches.run(&client, &stop),
                writer.run(stop.clone()),
                resizer.run(stop.clone())
            );
        });
        Ok(())
    }

    fn start_driver(&mut self) {
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

    /// Stops the resizer, and starts another without its state.
    pub(crate) async fn restart(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.stop = CancellationToken::new();
        self.start_resizer(&self.socket(), DEADLINE).await.unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    /// Stops everything and checks that nothing failed.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.driver_stop.cancel();
        while let Some(ended) = self.served.join_next().await {
            ended.unwrap();
        }
    }

    /// Creates a claim with 1Gi that requests 2Gi, bound to a volume of 1Gi with the handle
    /// `<name>-handle`.
    pub(crate) async fn claim(&self) {
        self.bound(|_| {}, |_| {}, json!({})).await;
    }

    /// Creates them with edits of claim, volume and the claim's status.
    pub(crate) async fn bound(
        &self,
        change_claim: impl FnOnce(&mut Value),
        change_volume: impl FnOnce(&mut Value),
        status: Value,
    ) {
        self.bound_as(self.name, change_claim, change_volume, status).await;
    }

    /// Creates them under another name.
    pub(crate) async fn bound_as(
        &self,
        name: &str,
        change_claim: impl FnOnce(&mut Value),
        change_volume: impl FnOnce(&mut Value),
        status: Value,
    ) {
        let mut claim = json!({
            "metadata": { "name": name },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "2Gi" } },
                "storageClassName": self.name,
                "volumeName": name,
            },
        });
        change_claim(&mut claim);
        let claim = self.create(CLAIMS, "PersistentVolumeClaim", claim).await;
        let uid = &claim["metadata"]["uid"];
        let mut volume = json!({
            "metadata": { "name": name },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.name,
                "claimRef": { "namespace": "default", "name": name, "uid": uid },
                "csi": { "driver": self.options.driver, "volumeHandle": format!("{name}-handle") },
            },
        });
        change_volume(&mut volume);
        self.create(VOLUMES, "PersistentVolume", volume).await;
        let bound = json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } });
        self.patch_status_of(name, bound).await;
        if status != json!({}) {
            self.patch_status_of(name, status).await;
        }
    }

    /// A class that allows expansion, which the API requires when a claim changes its size.
    pub(crate) async fn growing_class(&self) {
        let class = json!({
            "metadata": { "name": self.name },
            "provisioner": self.options.driver,
            "allowVolumeExpansion": true,
        });
        self.create("/apis/storage.k8s.io/v1/storageclasses", "StorageClass", class).await;
    }

    /// Requests another size.
    pub(crate) async fn ask_for(&self, size: &str) {
        let requests = json!({ "requests": { "storage": size } });
        self.patch(CLAIMS, json!({ "spec": { "resources": requests } })).await;
    }

    /// Requests another VolumeAttributesClass.
    pub(crate) async fn wish(&self, class: &str) {
        self.patch(CLAIMS, json!({ "spec": { "volumeAttributesClassName": class } })).await;
    }

    /// Waits until the journal has exactly these lines, without times.
    pub(crate) async fn expect<const N: usize>(&self, expected: [String; N]) {
        let lines = self.journal.wait_for(N).await;
        let lines: Vec<String> = lines.iter().map(|line| untimed(line)).collect();
        assert_eq!(lines, expected);
    }

    /// Waits for this number of lines about an object, and returns them with the test's name and
    /// without times.
    pub(crate) async fn about(&self, name: &str, count: usize) -> Vec<String> {
        let lines = self.journal.about(name, self.name, count).await;
        lines.iter().map(|line| untimed(line)).collect()
    }

    /// Waits for this event, among others.
    pub(crate) async fn event(&self, reason: &str, message: &str) {
        let mut lines = self.events.lines();
        while !told(&lines).contains(&owned((reason, message))) {
            lines = self.events.wait_for(lines.len() + 1).await;
        }
    }

    /// Waits for exactly these events, each as its reason and message.
    pub(crate) async fn expect_events<const N: usize>(&self, expected: [(&str, &str); N]) {
        let lines = self.events.wait_for(N).await;
        assert_eq!(told(&lines), expected.map(owned));
    }

    /// Waits for these events, followed by any others.
    pub(crate) async fn first_events<const N: usize>(&self, expected: [(&str, &str); N]) {
        let lines = self.events.wait_for(N).await;
        assert_eq!(told(&lines[..N]), expected.map(owned));
    }

    /// The claim's status, without irrelevant fields.
    pub(crate) async fn status(&self) -> Value {
        let mut status = self.get(CLAIMS).await.unwrap()["status"].take();
        status.as_object_mut().unwrap().remove("phase");
        status
    }

    pub(crate) async fn create(&self, path: &str, kind: &str, mut object: Value) -> Value {
        object["kind"] = json!(kind);
        object["apiVersion"] =
            json!(if path.starts_with("/apis") { "storage.k8s.io/v1" } else { "v1" });
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

    /// Patches the claim's status as another writer.
    pub(crate) async fn patch_status(&self, status: Value) {
        self.patch_status_of(self.name, status).await;
    }

    async fn patch_status_of(&self, name: &str, status: Value) {
        self.patch_at(&format!("{CLAIMS}/{name}/status"), json!({ "status": status })).await;
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

fn told(lines: &[String]) -> Vec<(String, String)> {
    let told = lines.iter().map(|line| {
        let event: Value = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
        owned((event["reason"].as_str().unwrap_or("again"), event["message"].as_str().unwrap()))
    });
    told.collect()
}

fn owned((reason, message): (&str, &str)) -> (String, String) {
    (reason.to_owned(), message.to_owned())
}

/// The line without its times.
pub(crate) fn untimed(line: &str) -> String {
    let Some((head, body)) = line.split_once(" {") else { return line.to_owned() };
    let (body, tail) = body.rsplit_once('}').unwrap();
    let mut body: Value = serde_json::from_str(&format!("{{{body}}}")).unwrap();
    let conditions = body.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        for field in ["lastProbeTime", "lastTransitionTime"] {
            if let Some(time) = condition.get_mut(field).filter(|time| time.is_string()) {
                *time = json!("*");
            }
        }
    }
    format!("{head} {body}{tail}")
}
