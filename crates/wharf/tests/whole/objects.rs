//! The objects that users create, and their results.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use wharf_testkit::cluster::IMAGE;

use crate::{
    rig::DRIVER,
    world::{CLAIM, CONTENT, POD, SNAPSHOT, VOLUME, World},
};

/// Conditions of claims that grow.
const GROWTH: [&str; 4] =
    ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];

/// A volume of a claim, or the content of a snapshot.
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) id: String,
}

/// A claim on a volume with a filesystem.
pub(crate) fn claim(class: &str, size: &str) -> Value {
    json!({ "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class,
        "resources": { "requests": { "storage": size } },
    } })
}

/// The same for a volume that begins with what another or a snapshot holds.
pub(crate) fn copy(class: &str, size: &str, source: Value) -> Value {
    let mut claim = claim(class, size);
    claim["spec"]["dataSource"] = source;
    claim
}

/// The same for a volume without a filesystem.
pub(crate) fn raw(mut claim: Value) -> Value {
    claim["spec"]["volumeMode"] = json!("Block");
    claim
}

/// A patch that asks for a larger volume.
pub(crate) fn larger(size: &str) -> Value {
    json!({ "spec": { "resources": { "requests": { "storage": size } } } })
}

/// Whether a claim has a condition.
pub(crate) fn condition(claim: &Value, kind: &str) -> Option<()> {
    let conditions = claim["status"]["conditions"].as_array()?;
    conditions.iter().any(|it| it["type"] == kind && it["status"] == "True").then_some(())
}

impl World {
    /// A pod that has a claim's volume at /data, runs `script` and stays.
    pub(crate) async fn run(&self, name: &str, claim: &str, script: &str) -> Result<()> {
        let data = json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim } });
        self.run_with(name, &[data], script).await
    }

    /// The same with volumes of any kind, each mounted where its name says.
    pub(crate) async fn run_with(&self, pod: &str, volumes: &[Value], script: &str) -> Result<()> {
        let mount = |volume: &Value| {
            let name = volume["name"].as_str().unwrap_or_default();
            json!({ "name": name, "mountPath": format!("/{name}") })
        };
        let mut container = container(script);
        container["volumeMounts"] = volumes.iter().map(mount).collect();
        self.create(POD, pod, stays(&container, volumes)).await
    }

    /// A pod that has a claim's volume as the device /dev/data, runs `script` and stays.
    pub(crate) async fn run_raw(&self, pod: &str, claim: &str, script: &str) -> Result<()> {
        let data = json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim } });
        let mut container = container(script);
        container["volumeDevices"] = json!([{ "name": "data", "devicePath": "/dev/data" }]);
        self.create(POD, pod, stays(&container, &[data])).await
    }

    /// Waits until a pod runs.
    pub(crate) async fn running(&self, pod: &str) -> Result<()> {
        self.until(POD, pod, "it runs", |it| (it["status"]["phase"] == "Running").then_some(()))
            .await
    }

    /// Deletes a pod and waits for its end.
    pub(crate) async fn end_pod(&self, pod: &str) -> Result<()> {
        self.delete(POD, pod).await?;
        self.gone(POD, pod).await
    }

    /// The volume of a claim, once it is bound.
    pub(crate) async fn bound(&self, claim: &str) -> Result<Made> {
        let name = self
            .until(CLAIM, claim, "it is bound", |it| {
                let bound = it["status"]["phase"] == "Bound";
                bound.then(|| it["spec"]["volumeName"].as_str().map(str::to_owned)).flatten()
            })
            .await?;
        let volume = self.get(VOLUME, &name).await?.context("the claim's volume")?;
        let csi = &volume["spec"]["csi"];
        ensure!(csi["driver"] == DRIVER, "{volume:#}");
        let id = csi["volumeHandle"].as_str().context("a handle")?.to_owned();
        Ok(Made { name, id })
    }

    /// The content of a snapshot, once it is ready.
    pub(crate) async fn ready(&self, snapshot: &str) -> Result<Made> {
        let name = self
            .until(SNAPSHOT, snapshot, "it is ready", |it| {
                let status = &it["status"];
                let content = status["boundVolumeSnapshotContentName"].as_str();
                content.filter(|_| status["readyToUse"] == true).map(str::to_owned)
            })
            .await?;
        let content = self.get(CONTENT, &name).await?.context("the snapshot's content")?;
        let id = content["status"]["snapshotHandle"].as_str().context("a handle")?.to_owned();
        Ok(Made { name, id })
    }

    /// Waits until a claim has this size and waits for nothing more.
    pub(crate) async fn has_size(&self, claim: &str, size: &str) -> Result<()> {
        self.until(CLAIM, claim, &format!("it has {size}"), |it| {
            let grown = it["status"]["capacity"]["storage"] == size;
            let resizing = GROWTH.iter().any(|kind| condition(it, kind).is_some());
            (grown && !resizing).then_some(())
        })
        .await
    }
}

fn container(script: &str) -> Value {
    json!({
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", format!("{script}; exec sleep 100000")],
    })
}

fn stays(container: &Value, volumes: &[Value]) -> Value {
    json!({ "spec": {
        // Not 0, which would mean not to wait for the kubelet.
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "containers": [container],
        "volumes": volumes,
    } })
}
