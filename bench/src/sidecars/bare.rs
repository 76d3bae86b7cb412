//! A client that makes the writes of our sidecars and nothing else: no cache, no driver, no
//! decisions.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    api::{Api, Patch, each},
    objects::{ATTACHMENTS, CLAIMS, CONTENTS, EVENTS, NAMESPACE, NODE, SNAPSHOTS, VOLUMES},
    operation::{Batch, EXPANDED, Operation},
};

/// A volume and events written by our provisioner, as templates.
pub(super) struct Model {
    volume: Value,
    events: Vec<Value>,
}

impl Model {
    /// The templates from the first provisioned claim of a batch.
    pub(super) async fn of(api: &Api, batch: &Batch) -> Result<Self> {
        let name = batch.name(0);
        let claim = api.get(&format!("{CLAIMS}/{name}")).await?;
        let uid = claim["metadata"]["uid"].as_str().context("a claim has a UID")?;
        let volume = api.get(&format!("{VOLUMES}/pvc-{uid}")).await?;
        let query = format!("{EVENTS}?fieldSelector=involvedObject.name%3D{name}");
        let events = api.get(&query).await?;
        let events = events["items"].as_array().context("a list has items")?;
        Ok(Self { volume: plain(&volume), events: events.iter().map(plain).collect() })
    }

    fn volume(&self, name: &str) -> Value {
        let mut volume = self.volume.clone();
        volume["metadata"]["name"] = json!(name);
        volume["spec"]["claimRef"]["name"] = json!(name);
        volume
    }

    fn event(&self, turn: usize, name: &str) -> Value {
        let mut event = self.events.get(turn).or(self.events.first()).cloned().unwrap_or_default();
        event["metadata"]["generateName"] = json!(format!("{name}."));
        event["involvedObject"]["name"] = json!(name);
        event
    }
}

/// Makes the writes of an operation for a whole batch, with the parallelism of our controller's
/// defaults.
pub(super) async fn write(
    api: &Api,
    operation: Operation,
    batch: &Batch,
    model: Arc<Model>,
) -> Result<()> {
    let at_a_time = match operation {
        Operation::Provision => 100,
        Operation::Attach | Operation::Expand => 40,
        Operation::Detach | Operation::Snapshot | Operation::Delete => 10,
    };
    let (api, batch) = (api.clone(), batch.clone());
    each(batch.count, at_a_time, move |number| {
        let (api, model, name) = (api.clone(), model.clone(), batch.name(number));
        let driver = batch.side.driver();
        async move {
            // Events are written in parallel to the work.
            let (work, recorded) = tokio::join!(
                work(&api, operation, &name, driver, &model),
                events(&api, operation, &name, &model),
            );
            work.and(recorded)
        }
    })
    .await
}

async fn work(
    api: &Api,
    operation: Operation,
    name: &str,
    driver: &str,
    model: &Model,
) -> Result<()> {
    match operation {
        Operation::Provision => api.post(VOLUMES, &model.volume(name)).await.map(drop),
        Operation::Attach => attach(api, name, driver).await,
        Operation::Detach => {
            let released = json!({ "metadata": { "finalizers": null } });
            let path = format!("{ATTACHMENTS}/{name}");
            api.patch(&path, Patch::Merge, &released).await.map(drop)
        }
        Operation::Expand => expand(api, name).await,
        Operation::Snapshot => snapshot(api, name, driver).await,
        Operation::Delete => Ok(()),
    }
}

async fn events(api: &Api, operation: Operation, name: &str, model: &Model) -> Result<()> {
    let count = match operation {
        Operation::Provision | Operation::Expand => 2,
        Operation::Snapshot => 3,
        Operation::Attach | Operation::Detach | Operation::Delete => 0,
    };
    for turn in 0..count {
        api.post(EVENTS, &model.event(turn, name)).await?;
    }
    Ok(())
}

async fn attach(api: &Api, name: &str, driver: &str) -> Result<()> {
    let finalizer = format!("external-attacher/{}", driver.replace('.', "-"));
    let volume = format!("{VOLUMES}/{name}");
    let append = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": finalizer }]);
    api.patch(&volume, Patch::Json, &append).await?;
    let attachment = format!("{ATTACHMENTS}/{name}");
    let prepared = json!({ "metadata": {
        "annotations": { "csi.alpha.kubernetes.io/node-id": NODE },
        "finalizers": [finalizer],
    } });
    api.patch(&attachment, Patch::Merge, &prepared).await?;
    let attached = json!({ "status": { "attached": true, "attachError": null } });
    api.patch(&format!("{attachment}/status"), Patch::Merge, &attached).await.map(drop)
}

async fn expand(api: &Api, name: &str) -> Result<()> {
    let status = format!("{CLAIMS}/{name}/status");
    let condition = json!({
        "lastTransitionTime": "2026-01-01T00:00:00Z", "status": "True", "type": "Resizing",
    });
    let begun = json!({ "status": {
        "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
        "allocatedResources": { "storage": EXPANDED },
        "conditions": [condition],
    } });
    api.patch(&status, Patch::Strategic, &begun).await?;
    let capacity = json!({ "spec": { "capacity": { "storage": EXPANDED } } });
    api.patch(&format!("{VOLUMES}/{name}"), Patch::Strategic, &capacity).await?;
    let done = json!({
        "metadata": { "annotations": { "volume.kubernetes.io/node-expansion-not-required": "true" } },
        "status": {
            "allocatedResourceStatuses": { "storage": null },
            "capacity": { "storage": EXPANDED },
            "conditions": [{ "$patch": "delete", "type": "Resizing" }],
        },
    });
    api.patch(&status, Patch::Strategic, &done).await.map(drop)
}

async fn snapshot(api: &Api, name: &str, driver: &str) -> Result<()> {
    const PREFIX: &str = "snapshot.storage.kubernetes.io";
    let snapshot = format!("{SNAPSHOTS}/{name}");
    let held = json!({ "metadata": { "finalizers": [
        format!("{PREFIX}/volumesnapshot-as-source-protection"),
        format!("{PREFIX}/volumesnapshot-bound-protection"),
    ] } });
    let stored: Value = serde_json::from_str(&api.patch(&snapshot, Patch::Merge, &held).await?)?;
    hold_claim(api, name, true).await?;
    let content_name = format!("snapcontent-{name}");
    let content = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotContent",
        "metadata": {
            "name": content_name,
            "finalizers": [format!("{PREFIX}/volumesnapshotcontent-bound-protection")],
        },
        "spec": {
            "deletionPolicy": "Delete",
            "driver": driver,
            "source": { "volumeHandle": name },
            "sourceVolumeMode": "Filesystem",
            "volumeSnapshotClassName": driver,
            "volumeSnapshotRef": {
                "apiVersion": "snapshot.storage.k8s.io/v1",
                "kind": "VolumeSnapshot",
                "name": name,
                "namespace": NAMESPACE,
                "uid": stored["metadata"]["uid"],
            },
        },
    });
    api.post(CONTENTS, &content).await?;
    let bound = json!({ "status": {
        "boundVolumeSnapshotContentName": content_name, "readyToUse": false,
    } });
    api.patch(&format!("{snapshot}/status"), Patch::Merge, &bound).await?;

    let content = format!("{CONTENTS}/{content_name}");
    let mark = |value: Value| {
        let annotations = json!({ format!("{PREFIX}/volumesnapshot-being-created"): value });
        json!({ "metadata": { "annotations": annotations } })
    };
    api.patch(&content, Patch::Merge, &mark(json!("yes"))).await?;
    let taken = json!({ "status": {
        "snapshotHandle": name, "creationTime": 1_000_000_000, "restoreSize": 5, "readyToUse": true,
    } });
    api.patch(&format!("{content}/status"), Patch::Merge, &taken).await?;
    api.patch(&content, Patch::Merge, &mark(Value::Null)).await?;

    let shown = json!({ "status": {
        "creationTime": "1970-01-01T00:00:01Z", "readyToUse": true, "restoreSize": "5",
    } });
    api.patch(&format!("{snapshot}/status"), Patch::Merge, &shown).await?;
    hold_claim(api, name, false).await
}

/// Reads a claim, changes its finalizers and writes it: snapshot-controller may update claims, but
/// not patch them.
async fn hold_claim(api: &Api, name: &str, hold: bool) -> Result<()> {
    const HELD: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";
    let path = format!("{CLAIMS}/{name}");
    let mut claim = api.get(&path).await?;
    let finalizers = claim["metadata"]["finalizers"].as_array_mut().context("finalizers")?;
    match hold {
        true => finalizers.push(json!(HELD)),
        false => finalizers.retain(|it| *it != json!(HELD)),
    }
    api.put(&path, &claim).await.map(drop)
}

/// An object without the fields that the API server adds.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["name", "uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    object
}
