//! A resizer, its driver, and objects for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

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

use super::driver::{Abilities, Driver};
use crate::journal::{DEADLINE, Journal};
use crate::role;

pub(crate) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const GI: i64 = 1 << 30;

/// Tests keep apart by their name, which all of their objects bear.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    pub(crate) admin: Client,
    pub(crate) journal: Journal,
    /// What was written about events, apart from the rest as nobody waits for it.
    events: Journal,
    pub(crate) driver: Driver,
    pub(crate) options: ResizerOptions,
    /// Whether the caches leave out objects of other drivers, as those of a sidecar do.
    pub(crate) one_driver: bool,
    folder: TempDir,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    driver_stop: CancellationToken,
    served: JoinSet<()>,
}

impl Bench {
    /// A driver that grows volumes, and leaves nothing to the node. `None` where there is no cluster to be had.
    pub(crate) async fn new(name: &'static str) -> Option<Self> {
        let controller = vec![rpc::Type::ExpandVolume];
        Self::with(name, Abilities { controller, ..Abilities::default() }).await
    }

    /// The same, with a node that has to follow.
    pub(crate) async fn with_node(name: &'static str) -> Option<Self> {
        let controller = vec![rpc::Type::ExpandVolume];
        Self::with(name, Abilities { controller, on_node: true, ..Abilities::default() }).await
    }

    pub(crate) async fn with(name: &'static str, abilities: Abilities) -> Option<Self> {
        let cluster = Cluster::shared().await.unwrap()?;
        role::grant(cluster).await;
        let admin = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
        let journal = Journal::new();
        let mut options = ResizerOptions::new(format!("{name}.csi.test"));
        options.backoff = Backoff { first: Duration::from_millis(5), ..options.backoff };
        Some(Self {
            name,
            admin,
            driver: Driver::new(journal.clone(), abilities),
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

    /// The same, with calls of the driver that end after `timeout`.
    pub(crate) async fn start_with_timeout(&mut self, timeout: Duration) {
        self.start_driver();
        self.start_resizer(&self.socket(), timeout).await.unwrap();
    }

    /// Starts the driver and says why there is nothing for a resizer to do.
    pub(crate) async fn refusal(&mut self) -> ResizerError {
        self.start_driver();
        self.start_resizer(&self.socket(), DEADLINE).await.unwrap_err()
    }

    /// Starts the resizer for a driver that others run.
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
        // What is asked before the work begins is no part of it.
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

    /// Ends the driver and starts it again.
    pub(crate) async fn restart_driver(&mut self) {
        self.driver_stop.cancel();
        self.served.join_next().await.unwrap().unwrap();
        self.start_driver();
    }

    /// Ends the resizer, and starts another that knows nothing of it.
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

    /// Stops everything and sees to it that nothing failed.
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

    /// A claim that has 1Gi, asks for 2Gi and is bound to a volume of 1Gi with the handle `<name>-handle`.
    pub(crate) async fn claim(&self) {
        self.bound(|_| {}, |_| {}, json!({})).await;
    }

    /// The same, and what the changes make of claim, volume and the claim's status.
    pub(crate) async fn bound(
        &self,
        change_claim: impl FnOnce(&mut Value),
        change_volume: impl FnOnce(&mut Value),
        status: Value,
    ) {
        self.bound_as(self.name, change_claim, change_volume, status).await;
    }

    /// The same under another name.
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

    /// A class that lets claims grow, which the API insists on where a claim changes its mind.
    pub(crate) async fn growing_class(&self) {
        let class = json!({
            "metadata": { "name": self.name },
            "provisioner": self.options.driver,
            "allowVolumeExpansion": true,
        });
        self.create("/apis/storage.k8s.io/v1/storageclasses", "StorageClass", class).await;
    }

    /// The claim asks for another size.
    pub(crate) async fn ask_for(&self, size: &str) {
        let requests = json!({ "requests": { "storage": size } });
        self.patch(CLAIMS, json!({ "spec": { "resources": requests } })).await;
    }

    /// The claim asks for another class of attributes.
    pub(crate) async fn wish(&self, class: &str) {
        self.patch(CLAIMS, json!({ "spec": { "volumeAttributesClassName": class } })).await;
    }

    /// Waits until the journal reads so, but for times.
    pub(crate) async fn expect<const N: usize>(&self, expected: [String; N]) {
        let lines = self.journal.wait_for(N).await;
        let lines: Vec<String> = lines.iter().map(|line| untimed(line)).collect();
        assert_eq!(lines, expected);
    }

    /// Waits until there are so many lines about an object, and gives them as if it bore the name of the test, but for
    /// times.
    pub(crate) async fn about(&self, name: &str, count: usize) -> Vec<String> {
        let lines = self.journal.about(name, self.name, count).await;
        lines.iter().map(|line| untimed(line)).collect()
    }

    /// Waits until this event was written, among others.
    pub(crate) async fn event(&self, reason: &str, message: &str) {
        let mut lines = self.events.lines();
        while !told(&lines).contains(&owned((reason, message))) {
            lines = self.events.wait_for(lines.len() + 1).await;
        }
    }

    /// Waits until these events and no others were written, each as its reason and its message.
    pub(crate) async fn expect_events<const N: usize>(&self, expected: [(&str, &str); N]) {
        let lines = self.events.wait_for(N).await;
        assert_eq!(told(&lines), expected.map(owned));
    }

    /// Waits until these events were written, whatever comes after.
    pub(crate) async fn first_events<const N: usize>(&self, expected: [(&str, &str); N]) {
        let lines = self.events.wait_for(N).await;
        assert_eq!(told(&lines[..N]), expected.map(owned));
    }

    /// The claim's status, without what has no bearing.
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

    /// A merge patch by someone else.
    pub(crate) async fn patch(&self, path: &str, patch: Value) {
        self.patch_at(&format!("{path}/{}", self.name), patch).await;
    }

    /// The same for an object of another name, or for a part of one.
    pub(crate) async fn patch_at(&self, path: &str, patch: Value) {
        let request = Request::patch(path).header("content-type", "application/merge-patch+json");
        self.write(request, &patch).await;
    }

    /// The claim's status, by someone else.
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

/// The line with its times taken out.
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
