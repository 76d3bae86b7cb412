//! A provisioner, its driver, and objects for it.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use wharf_csi::DriverOptions;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_reconcile::Backoff;
use wharf_sidecars::{
    Caches,
    provisioner::{CapacityOptions, Provisioner, ProvisionerOptions, UnsettledVolumes},
};
use wharf_testkit::process::wait_for;

use crate::journal::DEADLINE;
use crate::role;
use crate::stage::{NODES, Stage, VOLUMES};

pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(super) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
pub(super) const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

pub(super) struct Bench {
    stage: Stage,
    pub(super) options: ProvisionerOptions,
    pub(super) capacity: Option<CapacityOptions>,
    /// What the provisioner knows of the cluster.
    pub(super) caches: Caches,
    /// Whether the next provisioner knows what the one before it knew when it lost its Lease.
    pub(super) is_same_process: bool,
}

impl Deref for Bench {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }
}

impl Bench {
    /// A driver that makes volumes and can do `capabilities` besides. `None` where there is no cluster to be had.
    pub(super) async fn new(name: &'static str, capabilities: &[rpc::Type]) -> Option<Self> {
        let capabilities = [&[rpc::Type::CreateDeleteVolume], capabilities].concat();
        let stage = Stage::new(name, &capabilities).await?;
        let mut options = ProvisionerOptions::new(format!("{name}.csi.test"));
        options.backoff = Backoff { first: Duration::from_millis(5), ..options.backoff };
        options.host = "host".to_owned();
        // What is held back for a while in a test is no reason.
        options.mark_after = 2 * DEADLINE;
        let caches = Caches::of_all_drivers();
        Some(Self { stage, options, capacity: None, caches, is_same_process: false })
    }

    /// Starts the driver and the provisioner.
    pub(super) fn start(&mut self) {
        self.start_driver();
        self.start_provisioner(&self.socket(), DEADLINE);
    }

    /// Starts the provisioner for a driver that runs, whose calls end after `timeout`.
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

    /// Waits until the provisioner knows that something is so: its watches may be late.
    pub(super) async fn knows(&self, what: &str, is_so: impl Fn(&Caches) -> bool) {
        let known = async || is_so(&self.caches).then_some(());
        wait_for(DEADLINE, what, known).await.unwrap();
    }

    /// Stops everything and sees to it that nothing failed.
    pub(super) async fn stop(self) {
        self.stage.end().await;
    }

    /// The driver's StorageClass, and what `change` makes of it.
    pub(super) async fn class(&self, change: impl FnOnce(&mut Value)) {
        let mut class =
            json!({ "metadata": { "name": self.name }, "provisioner": self.options.driver });
        change(&mut class);
        self.create(CLASSES, "StorageClass", class).await;
    }

    /// A claim of that class, and what `change` makes of it. Gives the name of the volume that it should get.
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

    /// Deletes the claim, which no pod uses: only controllers of ours hold it.
    pub(super) async fn release_claim(&self) {
        self.release_claim_at(&format!("{CLAIMS}/{}", self.name)).await;
    }

    /// The same for a claim of another name.
    pub(super) async fn release_claim_at(&self, path: &str) {
        let claim = self.get_at(path).await.unwrap();
        let finalizers = claim["metadata"]["finalizers"].as_array().unwrap().iter();
        let left: Vec<&Value> =
            finalizers.filter(|it| **it != "kubernetes.io/pvc-protection").collect();
        self.patch_at(path, json!({ "metadata": { "finalizers": left } })).await;
        self.delete_at(path).await;
    }

    /// Deletes the claim, whoever holds it.
    pub(super) async fn delete_claim(&self) {
        self.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
        self.delete(CLAIMS).await;
    }

    /// A claim and its volume, bound as the binder would, and the journal empty.
    pub(super) async fn bound(&mut self) -> String {
        self.class(|_| {}).await;
        let volume = self.claim(|_| {}).await;
        self.start();
        self.journal.expect(made(&volume)).await;
        self.bind(self.name, &volume).await;
        self.journal.clear();
        volume
    }

    /// A node that stands in a zone, by a label of the test's own, with the driver on it.
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

    /// What the binder does.
    pub(super) async fn bind(&self, claim: &str, volume: &str) {
        let volume_name = json!({ "spec": { "volumeName": volume } });
        self.patch_at(&format!("{CLAIMS}/{claim}"), volume_name).await;
        let bound = json!({ "status": { "phase": "Bound" } });
        self.patch_at(&format!("{CLAIMS}/{claim}/status"), bound).await;
        self.set_phase(volume, "Bound").await;
    }

    /// A PersistentVolume of the driver that nobody claims any more, and what `change` makes of it.
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

/// What the making of a volume looks like.
pub(super) fn made(volume: &str) -> [String; 2] {
    [format!("CreateVolume {volume}"), format!("POST persistentvolumes {volume}")]
}

/// What the mark of an unsettled volume on a claim looks like, and its removal.
pub(super) fn marked(claim: &str) -> [String; 2] {
    ["GET", "PUT"].map(|verb| format!("{verb} namespaces/default/persistentvolumeclaims/{claim}"))
}

/// What its deletion looks like, of a PersistentVolume that the API protects as well.
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
