//! Operations of sidecars on many objects: the objects before, and the objects expected afterwards.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    api::{Api, Happening, Patch, each},
    objects::{self, ATTACHMENTS, CLAIMS, CONTENTS, EVENTS, SNAPSHOTS, VOLUMES},
    observation::Goal,
    side::Side,
};

/// Parallel requests of the bench when it makes objects.
const AT_A_TIME: usize = 32;
/// The size to which claims are expanded.
pub(super) const EXPANDED: &str = "2Gi";
const PROVISIONER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// An operation of a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Provision,
    Delete,
    Attach,
    Detach,
    Expand,
    Snapshot,
}

/// Objects for one side.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) side: Side,
    pub(super) prefix: String,
    pub(super) count: usize,
}

impl Batch {
    /// The name of an object.
    pub(super) fn name(&self, number: usize) -> String {
        format!("{}{number}", self.prefix)
    }
}

impl Operation {
    /// The Go programs that do it.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Provision | Self::Delete => &["csi-provisioner"],
            Self::Attach | Self::Detach => &["csi-attacher"],
            Self::Expand => &["csi-resizer"],
            Self::Snapshot => &["csi-snapshotter", "snapshot-controller"],
        }
    }

    /// Makes the objects on which the sidecars work. Volumes to be deleted were provisioned,
    /// attachments to be removed were made.
    pub(super) async fn prepare(self, api: &Api, batch: &Batch) -> Result<()> {
        if self == Self::Delete {
            return release(api, batch).await;
        }
        if self == Self::Attach {
            // Volumes are made before their attachments, so that no attachment is without its
            // volume.
            let volume = |api: Api, name: String, driver| async move {
                api.post(VOLUMES, &objects::volume(&name, driver, None)).await.map(drop)
            };
            for_each(api, batch, volume).await?;
        }
        let one = move |api: Api, name: String, driver| async move {
            self.prepare_one(&api, &name, driver).await
        };
        for_each(api, batch, one).await
    }

    /// The objects expected afterwards, including events.
    pub(super) fn goals(self, batch: &Batch) -> Vec<Goal> {
        let goal = |path: &str, is_reached: fn(Happening, &Value) -> bool| {
            let prefix = batch.prefix.clone();
            Goal {
                path: path.to_owned(),
                count: batch.count,
                may_lack: false,
                is_reached: Box::new(move |happening, object| {
                    concerns(object, &prefix) && is_reached(happening, object)
                }),
            }
        };
        let events = |each: usize| Goal {
            count: batch.count * each,
            may_lack: true,
            ..goal(EVENTS, |happening, _| happening == Happening::Added)
        };
        match self {
            Self::Provision => vec![goal(VOLUMES, |it, _| it == Happening::Added), events(2)],
            Self::Delete => vec![goal(VOLUMES, |_, volume| {
                volume["metadata"]["deletionTimestamp"].is_string()
                    && !volume["metadata"]["finalizers"].to_string().contains(PROVISIONER)
            })],
            Self::Attach => {
                vec![goal(ATTACHMENTS, |_, it| it["status"]["attached"] == json!(true))]
            }
            Self::Detach => vec![goal(ATTACHMENTS, |it, _| it == Happening::Deleted)],
            Self::Expand => {
                let is_expanded = |_: Happening, claim: &Value| {
                    let status = &claim["status"];
                    status["capacity"]["storage"] == json!(EXPANDED)
                        && status["allocatedResourceStatuses"].is_null()
                };
                vec![goal(CLAIMS, is_expanded), events(2)]
            }
            Self::Snapshot => {
                let is_ready = |_: Happening, it: &Value| it["status"]["readyToUse"] == json!(true);
                vec![goal(SNAPSHOTS, is_ready), events(3)]
            }
        }
    }

    async fn prepare_one(self, api: &Api, name: &str, driver: &str) -> Result<()> {
        match self {
            Self::Provision => api.post(CLAIMS, &objects::claim(name, driver)).await?,
            // All objects of the batch.
            Self::Delete => return Ok(()),
            Self::Attach => api.post(ATTACHMENTS, &objects::attachment(name, driver)).await?,
            Self::Detach => api.delete(&format!("{ATTACHMENTS}/{name}")).await?,
            Self::Expand => {
                bound(api, name, driver).await?;
                let size = json!({ "requests": { "storage": EXPANDED } });
                let more = json!({ "spec": { "resources": size } });
                api.patch(&format!("{CLAIMS}/{name}"), Patch::Merge, &more).await?
            }
            Self::Snapshot => {
                bound(api, name, driver).await?;
                api.post(SNAPSHOTS, &objects::snapshot(name, driver)).await?
            }
        };
        Ok(())
    }
}

/// Calls a function with the name and the driver of each object of a batch.
async fn for_each<F>(
    api: &Api,
    batch: &Batch,
    work: impl Fn(Api, String, &'static str) -> F + Send + Sync + 'static,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send,
{
    let (api, batch) = (api.clone(), batch.clone());
    each(batch.count, AT_A_TIME, move |number| {
        work(api.clone(), batch.name(number), batch.side.driver())
    })
    .await
}

/// Whether an object, the claim of a volume or the object of an event belongs to the batch.
fn concerns(object: &Value, prefix: &str) -> bool {
    let names = [
        &object["metadata"]["name"],
        &object["spec"]["claimRef"]["name"],
        &object["involvedObject"]["name"],
    ];
    names.iter().any(|name| name.as_str().is_some_and(|name| name.starts_with(prefix)))
}

/// Makes a claim and its volume, bound to each other.
pub(super) async fn bound(api: &Api, name: &str, driver: &str) -> Result<()> {
    let claim = api.create(CLAIMS, &objects::bound_claim(name, driver)).await?;
    let status = objects::claim_status();
    api.patch(&format!("{CLAIMS}/{name}/status"), Patch::Merge, &status).await?;
    api.post(VOLUMES, &objects::volume(name, driver, Some(&claim))).await?;
    let status = json!({ "status": { "phase": "Bound" } });
    api.patch(&format!("{VOLUMES}/{name}/status"), Patch::Merge, &status).await.map(drop)
}

/// Deletes all objects of the operations, and removes the finalizers of controllers that do not
/// run.
pub(super) async fn clear(api: &Api) -> Result<()> {
    for path in [SNAPSHOTS, CONTENTS, ATTACHMENTS, CLAIMS, VOLUMES] {
        delete_all(api, path).await.with_context(|| path.to_owned())?;
    }
    Ok(())
}

async fn delete_all(api: &Api, path: &'static str) -> Result<()> {
    api.delete(path).await?;
    let list = api.get(path).await?;
    let held = list["items"].as_array().context("a list has items")?;
    let names = held.iter().filter_map(|object| object["metadata"]["name"].as_str());
    let names: Arc<[String]> = names.map(str::to_owned).collect();
    let api = api.clone();
    each(names.len(), AT_A_TIME, move |number| {
        let (api, path) = (api.clone(), format!("{path}/{}", names[number]));
        let released = json!({ "metadata": { "finalizers": null } });
        async move { api.patch(&path, Patch::Merge, &released).await.map(drop) }
    })
    .await
}

/// Marks the batch's volumes as released, like kube-controller-manager.
async fn release(api: &Api, batch: &Batch) -> Result<()> {
    let list = api.get(VOLUMES).await?;
    let volumes = list["items"].as_array().context("a list has items")?;
    let names = volumes.iter().filter(|volume| concerns(volume, &batch.prefix));
    for volume in names {
        let name = volume["metadata"]["name"].as_str().context("a volume has a name")?;
        let status = json!({ "status": { "phase": "Released" } });
        api.patch(&format!("{VOLUMES}/{name}/status"), Patch::Merge, &status).await?;
    }
    Ok(())
}
