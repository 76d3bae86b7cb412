//! A provisioner, its driver, and objects for them.

use std::{
    ops::{Deref, DerefMut},
    path::Path,
    time::Duration,
};

use serde_json::{Value, json};
use wharf_csi::DriverOptions;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_reconcile::Backoff;
use wharf_sidecars::{
    Caches,
    provisioner::{CapacityOptions, Provisioner, ProvisionerOptions, UnsettledVolumes},
};
use wharf_testkit::process::wait_for;

use crate::{
    journal::DEADLINE,
    role,
    stage::{NODES, Stage, VOLUMES},
};

pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(super) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
pub(super) const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

pub(super) struct Fixture {
    stage: Stage,
    pub(super) options: ProvisionerOptions,
    pub(super) capacity: Option<CapacityOptions>,
    /// The provisioner's caches.
    pub(super) caches: Caches,
    /// Whether the next provisioner keeps the state of the one before, as after the loss of a
    /// Lease.
    pub(super) is_same_process: bool,
}

impl Deref for Fixture {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }
}

impl Fixture {
    /// A driver that creates volumes and has these `capabilities`. `None` without a cluster.
    pub(super) async fn new(name: &'static str, capabilities: &[rpc::Type]) -> Option<Self> {
        let capabilities = [&[rpc::Type::CreateDeleteVolume], capabilities].concat();
        let stage = Stage::new(name, &capabilities).await?;
        let mut options = ProvisionerOptions::new(format!("{name}.csi.test"));
        options.backoff = Backoff { first: Duration::from_millis(5), ..options.backoff };
        options.host = "host".to_owned();
        // A delay in a test must not mark the claim.
        options.mark_after = 2 * DEADLINE;
        let caches = Caches::of_all_drivers();
        Some(Self { stage, options, capacity: None, caches, is_same_process: false })
    }

    /// Starts the driver and the provisioner.
    pub(super) fn start(&mut self) {
        self.start_driver();
        self.start_provisioner(&self.socket(), DEADLINE);
    }

    /// Starts the provisioner for a running driver, with this `timeout` for calls.
    pub(super) fn start_provisioner(&mut self, socket: &Path, timeout: Duration) {
        if !self.is_same_process {
            self.options.unsettled = UnsettledVolumes::default();
        }
        let client = self.journal.client(&self.wire, Some(role::PROVISIONER));
        let caches = Caches::of_all_drivers();
        self.caches = caches.clone();
        let options = DriverOptions { hold: true, timeout, ..DriverOptions::default() };
        let driver = wharf_csi::Driver::new(socket, options);
        let mut provisioner =
            Provisioner::new(self.options.clone(), client.clone(), driver.clone(), caches.clone());
        if let Some(options) = self.capacity.clone() {
            provisioner = provisioner.telling_capacity(options, client.clone());
        }
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            driver.connected(DEADLINE).await.unwrap();
            tokio::join!(caches.run(&client, &stop), provisioner.run(stop.clone()));
        });
    }

    /// Waits until the provisioner's caches show a state: its watches may be late.
    pub(super) async fn knows(&self, what: &str, is_so: impl Fn(&Caches) -> bool) {
        let known = async || is_so(&self.caches).then_some(());
        wait_for(DEADLINE, what, known).await.unwrap();
    }

    /// Stops everything and checks that nothing failed.
    pub(super) async fn stop(self) {
        self.stage.end().await;
    }

    /// Creates the driver's StorageClass, edited by `change`.
    pub(super) async fn class(&self, change: impl FnOnce(&mut Value)) {
        let mut class =
            json!({ "metadata": { "name": self.name }, "provisioner": self.options.driver });
        change(&mut class);
        self.create(CLASSES, "StorageClass", class).await;
    }

    /// Creates a claim of that class, edited by `change`. Returns its volume's name.
    pub(super) async fn claim(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut claim = json!({
            "metadata": {
                "name": self.name,
                "annotations": { "volume.kubernetes.io/storage-provisioner": self.options.driver },
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.name,
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        change(&mut claim);
        let made = self.create(CLAIMS, "PersistentVolumeClaim", claim).await;
        format!("pvc-{}", made["metadata"]["uid"].as_str().unwrap())
    }

    /// Deletes the claim, which no pod uses: only our controllers have finalizers on it.
    pub(super) async fn release_claim(&self) {
        self.release_claim_at(&format!("{CLAIMS}/{}", self.name)).await;
    }

    /// Deletes a claim of another name.
    pub(super) async fn release_claim_at(&self, path: &str) {
        let claim = self.get_at(path).await.unwrap();
        let finalizers = claim["metadata"]["finalizers"].as_array().unwrap().iter();
        let left: Vec<&Value> =
            finalizers.filter(|it| **it != "kubernetes.io/pvc-protection").collect();
        self.patch_at(path, json!({ "metadata": { "finalizers": left } })).await;
        self.delete_at(path).await;
    }

    /// Deletes the claim and all its finalizers.
    pub(super) async fn delete_claim(&self) {
        self.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
        self.delete(CLAIMS).await;
    }

    /// Creates a claim and its volume, binds them as the binder would, and clears the journal.
    pub(super) async fn bound(&mut self) -> String {
        self.class(|_| {}).await;
        let volume = self.claim(|_| {}).await;
        self.start();
        self.journal.expect(made(&volume)).await;
        self.bind(self.name, &volume).await;
        self.journal.clear();
        volume
    }

    /// Creates a node in a zone, with a label of the test's own, and the driver on it.
    pub(super) async fn node(&self, name: &str, zone: &str) {
        let key = self.zone_key();
        let node = json!({ "metadata": { "name": name, "labels": { &*key: zone } } });
        self.create("/api/v1/nodes", "Node", node).await;
        let driver = json!({ "name": self.options.driver, "nodeID": name, "topologyKeys": [key] });
        let node = json!({ "metadata": { "name": name }, "spec": { "drivers": [driver] } });
        self.create(NODES, "CSINode", node).await;
    }

    pub(super) fn zone_key(&self) -> String {
        format!("{}.test/zone", self.name)
    }

    /// Binds a claim as the binder does.
    pub(super) async fn bind(&self, claim: &str, volume: &str) {
        let volume_name = json!({ "spec": { "volumeName": volume } });
        self.patch_at(&format!("{CLAIMS}/{claim}"), volume_name).await;
        let bound = json!({ "status": { "phase": "Bound" } });
        self.patch_at(&format!("{CLAIMS}/{claim}/status"), bound).await;
        self.set_phase(volume, "Bound").await;
    }

    /// Creates a released PersistentVolume of the driver, edited by `change`.
    pub(super) async fn released(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut volume = json!({
            "metadata": { "name": name, "finalizers": [FINALIZER] },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": { "driver": self.options.driver, "volumeHandle": name },
            },
        });
        change(&mut volume);
        self.create(VOLUMES, "PersistentVolume", volume).await;
        self.set_phase(name, "Released").await;
    }

    pub(super) async fn set_phase(&self, volume: &str, phase: &str) {
        let status = json!({ "status": { "phase": phase } });
        self.patch_at(&format!("{VOLUMES}/{volume}/status"), status).await;
    }

    pub(super) async fn persistent_volume(&self, name: &str) -> Option<Value> {
        self.get_at(&format!("{VOLUMES}/{name}")).await
    }
}

/// The journal of the creation of a volume.
pub(super) fn made(volume: &str) -> [String; 2] {
    [format!("CreateVolume {volume}"), format!("POST persistentvolumes {volume}")]
}

/// The journal of the mark of an unsettled volume on a claim, and of its removal.
pub(super) fn marked(claim: &str) -> [String; 2] {
    ["GET", "PUT"].map(|verb| format!("{verb} namespaces/default/persistentvolumeclaims/{claim}"))
}

/// The journal of the deletion of a volume, whose PersistentVolume Kubernetes protects as well.
pub(super) fn deleted(volume: &str) -> [String; 3] {
    let path = "/metadata/finalizers/0";
    let steps = json!([
        { "op": "test", "path": path, "value": FINALIZER }, { "op": "remove", "path": path },
    ]);
    [
        format!("DeleteVolume {volume}"),
        format!("DELETE persistentvolumes/{volume}"),
        format!("PATCH persistentvolumes/{volume} {steps}"),
    ]
}
