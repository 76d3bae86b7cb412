//! An attacher, its driver, and objects for them.

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
    attacher::{Attacher, AttacherOptions},
};

pub(crate) use crate::stage::{ATTACHMENTS, NODES, VOLUMES};
use crate::{journal::DEADLINE, role, stage::Stage};

pub(crate) const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";
pub(crate) const VOLUME_HANDLE: &str = "csi.wharf.dev/volume-handle";
pub(crate) const SECRET: &str = "csi.wharf.dev/publish-secret";

pub(crate) struct Fixture {
    stage: Stage,
    pub(crate) options: AttacherOptions,
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
    /// A driver with ControllerPublishVolume and these `capabilities`. `None` without a cluster.
    pub(crate) async fn new(name: &'static str, capabilities: &[rpc::Type]) -> Option<Self> {
        let capabilities = [&[rpc::Type::PublishUnpublishVolume], capabilities].concat();
        Self::with(name, &capabilities).await
    }

    /// A driver with only these `capabilities`.
    pub(crate) async fn with(name: &'static str, capabilities: &[rpc::Type]) -> Option<Self> {
        let stage = Stage::new(name, capabilities).await?;
        let mut options = AttacherOptions::new(format!("{name}.csi.test"));
        options.backoff = Backoff { first: Duration::from_millis(5), ..options.backoff };
        Some(Self { stage, options })
    }

    /// Starts the driver and the attacher.
    pub(crate) fn start(&mut self) {
        self.start_with_timeout(DEADLINE);
    }

    /// Starts both, with this `timeout` for calls of the driver.
    pub(crate) fn start_with_timeout(&mut self, timeout: Duration) {
        self.start_driver();
        let socket = self.socket();
        self.start_attacher(&socket, timeout);
    }

    /// Starts the attacher for a running driver.
    pub(crate) fn start_attacher(&mut self, socket: &Path, timeout: Duration) {
        let client = self.journal.client(&self.wire, Some(role::ATTACHER));
        let caches = Caches::of_all_drivers();
        let options = DriverOptions { hold: true, timeout, ..DriverOptions::default() };
        let driver = wharf_csi::Driver::new(socket, options);
        let attacher =
            Attacher::new(self.options.clone(), client.clone(), driver.clone(), caches.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            driver.connected(DEADLINE).await.unwrap();
            tokio::join!(caches.run(&client, &stop), attacher.run(stop.clone()));
        });
    }

    /// Stops everything and checks that nothing failed.
    pub(crate) async fn stop(self) {
        self.stage.end().await;
    }

    pub(crate) fn finalizer(&self) -> String {
        format!("external-attacher/{}-csi-test", self.name)
    }

    /// Creates the node's CSINode, with the node ID `<name>-id`.
    pub(crate) async fn node(&self) {
        let driver = json!({ "name": self.options.driver, "nodeID": format!("{}-id", self.name) });
        let node = json!({ "metadata": { "name": self.name }, "spec": { "drivers": [driver] } });
        self.create(NODES, "CSINode", node).await;
    }

    /// Creates a PersistentVolume with the handle `<name>-handle`, edited by `change`.
    pub(crate) async fn volume(&self, change: impl FnOnce(&mut Value)) {
        let mut volume = json!({
            "metadata": { "name": self.name },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": self.options.driver, "volumeHandle": format!("{}-handle", self.name) },
            },
        });
        change(&mut volume);
        self.create(VOLUMES, "PersistentVolume", volume).await;
    }

    /// Creates a VolumeAttachment of that volume to that node, edited by `change`.
    pub(crate) async fn attachment(&self, change: impl FnOnce(&mut Value)) {
        let mut attachment = json!({
            "metadata": { "name": self.name },
            "spec": {
                "attacher": self.options.driver,
                "nodeName": self.name,
                "source": { "persistentVolumeName": self.name },
            },
        });
        change(&mut attachment);
        self.create(ATTACHMENTS, "VolumeAttachment", attachment).await;
    }

    /// Creates both under another name, edited by the changes.
    pub(crate) async fn pair(
        &self,
        name: &str,
        change_volume: impl FnOnce(&mut Value),
        change_attachment: impl FnOnce(&mut Value),
    ) {
        self.volume(|it| {
            it["metadata"]["name"] = json!(name);
            it["spec"]["csi"]["volumeHandle"] = json!(format!("{name}-handle"));
            change_volume(it);
        })
        .await;
        self.attachment(|it| {
            it["metadata"]["name"] = json!(name);
            it["spec"]["source"]["persistentVolumeName"] = json!(name);
            change_attachment(it);
        })
        .await;
    }

    /// Creates all three, waits until the volume is attached, and clears the journal.
    pub(crate) async fn attached(&mut self) {
        self.node().await;
        self.volume(|_| {}).await;
        self.attachment(|_| {}).await;
        self.start();
        self.journal.expect(self.attach_lines()).await;
        self.journal.clear();
    }

    /// The journal of an attach.
    pub(crate) fn attach_lines(&self) -> [String; 4] {
        [self.protect_line(), self.prepare_line(), self.publish_line(), self.attached_line()]
    }

    pub(crate) fn protect_line(&self) -> String {
        let protection = "kubernetes.io/pv-protection";
        let (name, finalizer) = (self.name, self.finalizer());
        let steps = json!([
            { "op": "test", "path": "/metadata/finalizers", "value": [protection] },
            { "op": "add", "path": "/metadata/finalizers/-", "value": finalizer },
        ]);
        format!("PATCH persistentvolumes/{name} {steps}")
    }

    pub(crate) fn prepare_line(&self) -> String {
        self.prepare_line_noting(json!({ VOLUME_HANDLE: format!("{}-handle", self.name) }))
    }

    /// The journal of an attach with other notes than the volume's handle.
    pub(crate) fn prepare_line_noting(&self, mut annotations: Value) -> String {
        annotations[NODE_ID] = json!(format!("{}-id", self.name));
        let metadata = json!({
            "annotations": annotations,
            "finalizers": [self.finalizer()],
            "resourceVersion": "*",
        });
        format!("PATCH volumeattachments/{} {}", self.name, json!({ "metadata": metadata }))
    }

    pub(crate) fn publish_line(&self) -> String {
        format!("ControllerPublishVolume {0}-handle {0}-id", self.name)
    }

    pub(crate) fn attached_line(&self) -> String {
        self.status_line(&json!({
            "attachError": null, "attached": true, "attachmentMetadata": { "device": "sda" },
        }))
    }

    pub(crate) fn unpublish_line(&self) -> String {
        format!("ControllerUnpublishVolume {0}-handle {0}-id", self.name)
    }

    pub(crate) fn release_line(&self) -> String {
        let metadata = json!({ "finalizers": null, "resourceVersion": "*" });
        format!("PATCH volumeattachments/{} {}", self.name, json!({ "metadata": metadata }))
    }

    pub(crate) fn status_line(&self, status: &Value) -> String {
        format!("PATCH volumeattachments/{}/status {}", self.name, json!({ "status": status }))
    }

    /// The saved error of a refused attachment.
    pub(crate) fn attach_error_line(&self, message: &str, code: Option<i32>) -> String {
        let error = json!({ "errorCode": code, "message": message, "time": "*" });
        self.status_line(&json!({ "attachError": error }))
    }

    pub(crate) fn detach_error_line(&self, message: &str) -> String {
        self.status_line(&json!({ "detachError": { "message": message, "time": "*" } }))
    }

    /// Patches the status as another writer.
    pub(crate) async fn patch_status(&self, status: Value) {
        let path = format!("{ATTACHMENTS}/{}/status", self.name);
        self.patch_at(&path, json!({ "status": status })).await;
    }
}
