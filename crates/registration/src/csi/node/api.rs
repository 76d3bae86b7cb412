use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
    },
    core::GroupVersionKind,
};
use serde_json::Value;
use tracing::{debug, info, warn};
use wharf_cluster::{ApiFailure, EventRecorder, EventType, bounded};

use super::{
    plan::{self, CsiNodePlan, Refusals, Wanted},
    record::{NodeObjects, SyncError},
};

/// How often a write with a conflict is retried at once, before the pauses of the record begin.
const CONFLICTS: usize = 5;

/// The Node and the CSINode in the Kubernetes API.
pub struct ApiObjects {
    node_name: String,
    nodes: Api<DynamicObject>,
    csi_nodes: Api<DynamicObject>,
    events: EventRecorder,
    /// The last event text by driver, so that a collision gets one event until the driver is
    /// accepted.
    recorded: Mutex<BTreeMap<String, String>>,
}

impl ApiObjects {
    /// The objects of the node `node_name`.
    pub fn new(client: Client, node_name: impl Into<String>) -> Self {
        let kind = |group, kind, plural| {
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
        };
        let node_name = node_name.into();
        Self {
            nodes: Api::all_with(client.clone(), &kind("", "Node", "nodes")),
            csi_nodes: Api::all_with(
                client.clone(),
                &kind("storage.k8s.io", "CSINode", "csinodes"),
            ),
            events: EventRecorder::new(client, "wharf", node_name.clone()),
            node_name,
            recorded: Mutex::default(),
        }
    }

    async fn sync_once(&self, wanted: &Wanted) -> Result<Refusals, ApiFailure> {
        let name = &self.node_name;
        let what = format!("Node {name}");
        let node = to_value(bounded(&what, self.nodes.get(name)).await?)?;
        let uid = node["metadata"]["uid"].as_str().unwrap_or_default();
        let plan = plan::node(&node, wanted)
            .map_err(|message| ApiFailure::Invalid { what: what.clone(), message })?;
        if let Some(mut patch) = plan.patch {
            debug!(node = %name, patch = %patch, "patching Node");
            // The patch is computed from this version of the Node: a change in between must fail
            // it.
            patch["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"].clone();
            let patch = Patch::Strategic(patch);
            // The status subresource, like the kubelet: node authorizers grant that one.
            bounded(&what, self.nodes.patch_status(name, &PatchParams::default(), &patch)).await?;
        }
        for (driver, reason) in &plan.contradicted {
            warn!(driver = %driver, error = %reason, "topology label of a registered driver changed, keeping both");
        }
        self.record_collisions(uid, wanted, &plan.refused).await;
        self.sync_csi_node(uid, wanted, &plan.refused).await?;
        Ok(plan.refused)
    }

    async fn sync_csi_node(
        &self,
        node_uid: &str,
        wanted: &Wanted,
        refused: &Refusals,
    ) -> Result<(), ApiFailure> {
        let name = &self.node_name;
        let what = format!("CSINode {name}");
        let current = match bounded(&what, self.csi_nodes.get_opt(name)).await? {
            Some(object) => Some(to_value(object)?),
            None => None,
        };
        match plan::csi_node(current.as_ref(), name, node_uid, wanted, refused) {
            CsiNodePlan::Keep => Ok(()),
            CsiNodePlan::Create(object) => {
                let object = to_object(object)?;
                bounded(&what, self.csi_nodes.create(&PostParams::default(), &object)).await?;
                Ok(())
            }
            CsiNodePlan::Delete => {
                info!(node = %name, "recreating CSINode of a former Node");
                let uid = current.and_then(|it| it["metadata"]["uid"].as_str().map(str::to_owned));
                let only_this = DeleteParams {
                    preconditions: Some(Preconditions { uid, resource_version: None }),
                    ..DeleteParams::default()
                };
                bounded(&what, self.csi_nodes.delete(name, &only_this)).await?;
                let CsiNodePlan::Create(object) =
                    plan::csi_node(None, name, node_uid, wanted, refused)
                else {
                    return Ok(());
                };
                let object = to_object(object)?;
                bounded(&what, self.csi_nodes.create(&PostParams::default(), &object)).await?;
                Ok(())
            }
            CsiNodePlan::Replace { object, without_changed } => {
                match self.replace(&what, object.clone()).await {
                    // Node ID and topology keys of an entry are immutable: remove the entry, then
                    // add it again.
                    Err(ApiFailure::Invalid { message, .. }) if object != without_changed => {
                        info!(node = %name, reason = %message, "replacing driver entries in two steps");
                        let written = self.replace(&what, without_changed).await?;
                        let mut object = object;
                        object["metadata"]["resourceVersion"] =
                            written["metadata"]["resourceVersion"].clone();
                        self.replace(&what, object).await?;
                        Ok(())
                    }
                    other => other.map(|_| ()),
                }
            }
        }
    }

    async fn replace(&self, what: &str, object: Value) -> Result<Value, ApiFailure> {
        let object = to_object(object)?;
        let params = PostParams::default();
        let put = self.csi_nodes.replace(&self.node_name, &params, &object);
        to_value(bounded(what, put).await?)
    }

    /// Writes an event on the Node for each new collision.
    async fn record_collisions(&self, node_uid: &str, wanted: &Wanted, refused: &Refusals) {
        let news: Vec<_> = {
            let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
            for (taken, _) in wanted.drivers.iter().filter(|(name, _)| !refused.contains_key(name))
            {
                recorded.remove(taken);
            }
            let mut is_news = |(driver, reason): &(&String, &String)| {
                recorded.insert((*driver).clone(), (*reason).clone()).as_ref() != Some(*reason)
            };
            refused.iter().filter(|refusal| is_news(refusal)).collect()
        };
        for (driver, reason) in news {
            let about = ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Node".into()),
                name: Some(self.node_name.clone()),
                uid: Some(node_uid.to_owned()),
                ..ObjectReference::default()
            };
            let message = format!(
                "CSI driver {driver} is not registered on this node: {reason}. Correct the node's label or the driver's topology."
            );
            if let Err(error) = self
                .events
                .record(about, EventType::Warning, "CSITopologyCollision", &message)
                .await
            {
                warn!(driver = %driver, %error, "failed to write event");
            }
        }
    }
}

#[async_trait]
impl NodeObjects for ApiObjects {
    async fn sync(&self, wanted: &Wanted) -> Result<Refusals, SyncError> {
        let mut last = None;
        for _ in 0..CONFLICTS {
            match self.sync_once(wanted).await {
                Ok(refused) => return Ok(refused),
                Err(error @ ApiFailure::Conflict { .. }) => last = Some(error),
                Err(error) if error.may_pass() => {
                    return Err(SyncError::Transient(error.to_string()));
                }
                Err(error) => return Err(SyncError::Permanent(error.to_string())),
            }
        }
        Err(SyncError::Transient(last.map(|error| error.to_string()).unwrap_or_default()))
    }
}

fn to_value(object: DynamicObject) -> Result<Value, ApiFailure> {
    serde_json::to_value(object).map_err(|error| unreadable(&error))
}

fn to_object(value: Value) -> Result<DynamicObject, ApiFailure> {
    serde_json::from_value(value).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> ApiFailure {
    ApiFailure::Invalid {
        what: "object of the Kubernetes API".to_owned(),
        message: error.to_string(),
    }
}
