//! A namespace of the cluster, and the actions of a user in it.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use kube::{
    api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use wharf_testkit::process::{self, wait_for};

use crate::rig::{self, PATIENCE, Rig};

/// A kind of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    group: &'static str,
    name: &'static str,
    namespaced: bool,
}

pub(crate) const CLAIM: Kind = namespaced("", "PersistentVolumeClaim");
pub(crate) const POD: Kind = namespaced("", "Pod");
pub(crate) const SNAPSHOT: Kind = namespaced("snapshot.storage.k8s.io", "VolumeSnapshot");
pub(crate) const VOLUME: Kind = global("", "PersistentVolume");
pub(crate) const ATTACHMENT: Kind = global("storage.k8s.io", "VolumeAttachment");
pub(crate) const CLASS: Kind = global("storage.k8s.io", "StorageClass");
pub(crate) const ATTRIBUTES: Kind = global("storage.k8s.io", "VolumeAttributesClass");
pub(crate) const CSI_DRIVER: Kind = global("storage.k8s.io", "CSIDriver");
pub(crate) const CSI_NODE: Kind = global("storage.k8s.io", "CSINode");
pub(crate) const CONTENT: Kind = global("snapshot.storage.k8s.io", "VolumeSnapshotContent");
pub(crate) const SNAPSHOT_CLASS: Kind = global("snapshot.storage.k8s.io", "VolumeSnapshotClass");
const NAMESPACE: Kind = global("", "Namespace");

const fn namespaced(group: &'static str, name: &'static str) -> Kind {
    Kind { group, name, namespaced: true }
}

const fn global(group: &'static str, name: &'static str) -> Kind {
    Kind { group, name, namespaced: false }
}

/// Tests keep apart by their namespace.
pub(crate) struct World {
    pub(crate) rig: &'static Rig,
    pub(crate) namespace: &'static str,
    client: kube::Client,
}

impl World {
    /// `None` where there is no cluster to be had.
    pub(crate) async fn new(namespace: &'static str) -> Result<Option<Self>> {
        let Some(rig) = rig::shared().await? else { return Ok(None) };
        let client = wharf_cluster::connect(Some(rig.cluster.kubeconfig())).await?;
        let world = Self { rig, namespace, client };
        world.create(NAMESPACE, namespace, json!({})).await?;
        Ok(Some(world))
    }

    pub(crate) async fn create(&self, kind: Kind, name: &str, mut object: Value) -> Result<()> {
        object["metadata"]["name"] = json!(name);
        object["apiVersion"] = json!(match kind.group {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        });
        object["kind"] = json!(kind.name);
        let object: DynamicObject = serde_json::from_value(object)?;
        let created = self.api(kind).create(&PostParams::default(), &object).await;
        created.map(drop).with_context(|| format!("create {} {name}", kind.name))
    }

    /// A merge patch.
    pub(crate) async fn patch(&self, kind: Kind, name: &str, patch: &Value) -> Result<()> {
        let patch = Patch::Merge(patch);
        self.api(kind).patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        self.api(kind).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>> {
        let found = self.api(kind).get_opt(name).await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    pub(crate) async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        let found = self.api(kind).list(&Default::default()).await?;
        found.items.into_iter().map(|it| Ok(serde_json::to_value(it)?)).collect()
    }

    /// Waits until `wanted` makes something of an object.
    pub(crate) async fn until<T>(
        &self,
        kind: Kind,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> Option<T>,
    ) -> Result<T> {
        let what = format!("{} {name}: {what}", kind.name);
        let found =
            wait_for(PATIENCE, &what, || async { wanted(&self.get(kind, name).await.ok()??) });
        match found.await {
            Err(error) => Err(error.context(self.account(kind, name).await)),
            found => found,
        }
    }

    /// Waits for an object's end.
    pub(crate) async fn gone(&self, kind: Kind, name: &str) -> Result<()> {
        let what = format!("{} {name} to go", kind.name);
        let gone = wait_for(PATIENCE, &what, || async {
            self.get(kind, name).await.ok()?.is_none().then_some(())
        });
        match gone.await {
            Err(error) => Err(error.context(self.account(kind, name).await)),
            gone => gone,
        }
    }

    /// Waits for what a pod prints to be what `wanted` looks for.
    pub(crate) async fn says<T>(
        &self,
        pod: &str,
        what: &str,
        wanted: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let printed = || self.rig.cluster.output(self.namespace, pod, "main").unwrap_or_default();
        let what = format!("pod {pod} to say {what}");
        let said = wait_for(PATIENCE, &what, || std::future::ready(wanted(&printed())));
        match said.await {
            Err(error) => Err(error.context(format!("{}\n{}", printed(), self.events().await))),
            said => said,
        }
    }

    /// What `wharf why` tells of a claim.
    pub(crate) async fn why(&self, claim: &str) -> Result<String> {
        self.rig.wharf(&["why", &format!("pvc/{claim}"), "-n", self.namespace]).await
    }

    /// What `wharf status` tells of the namespace.
    pub(crate) async fn status(&self, more: &[&str]) -> Result<String> {
        self.rig.wharf(&[&["status", "-n", self.namespace], more].concat()).await
    }

    /// The namespace's end, and with it that of all that is in it.
    pub(crate) async fn end(&self) -> Result<()> {
        self.delete(NAMESPACE, self.namespace).await?;
        self.gone(NAMESPACE, self.namespace).await
    }

    /// An object, and what happened, for failures.
    async fn account(&self, kind: Kind, name: &str) -> String {
        let object = self.get(kind, name).await.ok().flatten().unwrap_or_default();
        format!("{object:#}\n{}", self.events().await)
    }

    /// What happened here, for failures.
    async fn events(&self) -> String {
        let mut told = String::new();
        let kinds = "events,pods,pvc,volumesnapshots";
        let arguments = ["get", kinds, "--namespace", self.namespace, "--output=wide"];
        match self.rig.cluster.kubectl(&arguments).await {
            Ok(output) => told += &String::from_utf8_lossy(&output.stdout),
            Err(error) => told += &error.to_string(),
        }
        let mut tail = Command::new("sh");
        let script = "for log in \"$0\"/sidecars-*.log \"$0\"/driver-*.log; do echo \"$log:\"; tail -n 20 \"$log\"; done";
        tail.args(["-c", script]).arg(self.rig.cluster.folder());
        told + &process::run(&tail, PATIENCE).await.unwrap_or_default()
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let kind_and_version = GroupVersionKind::gvk(kind.group, "v1", kind.name);
        let resource = ApiResource::from_gvk(&kind_and_version);
        match kind.namespaced {
            true => Api::namespaced_with(self.client.clone(), self.namespace, &resource),
            false => Api::all_with(self.client.clone(), &resource),
        }
    }
}

/// Fails unless a text has all of these words.
pub(crate) fn has(text: &str, words: &[&str]) -> Result<()> {
    let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
    ensure!(missing.is_empty(), "{missing:?} is missing in:\n{text}");
    Ok(())
}
