use jiff::Timestamp;
use kube::Client;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use wharf_cluster::{
    ApiFailure, CsiNode, Kind, Pages, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeAttachment, VolumeGroupSnapshot, VolumeSnapshot, VolumeSnapshotClass,
    VolumeSnapshotContent, served_at,
};

use super::Finding;
use crate::not_served::NOT_SERVED;

/// The storage objects of a cluster at one moment.
#[derive(Debug, Default)]
pub struct ClusterSnapshot {
    /// The moment.
    pub now: Timestamp,
    /// The claims in the selected namespaces.
    pub claims: Vec<Listed<PersistentVolumeClaim>>,
    /// All volumes.
    pub volumes: Vec<Listed<PersistentVolume>>,
    /// All attachments.
    pub attachments: Vec<Listed<VolumeAttachment>>,
    /// The snapshots in the selected namespaces.
    pub snapshots: Vec<Listed<VolumeSnapshot>>,
    /// Whether the API does not serve snapshots.
    pub lacks_snapshots: bool,
    /// All VolumeSnapshotContents.
    pub contents: Vec<Listed<VolumeSnapshotContent>>,
    /// All StorageClasses.
    pub storage_classes: Vec<Listed<StorageClass>>,
    /// All VolumeSnapshotClasses.
    pub snapshot_classes: Vec<Listed<VolumeSnapshotClass>>,
    /// The group snapshots in the selected namespaces.
    pub group_snapshots: Vec<Listed<VolumeGroupSnapshot>>,
    /// All CSINodes.
    pub csi_nodes: Vec<Listed<CsiNode>>,
    /// The pods in the selected namespaces, as JSON.
    pub pods: Vec<Value>,
    /// Warning events in these namespaces, as JSON.
    pub warnings: Vec<Value>,
}

/// An object, with fields that the controllers do not keep.
#[derive(Clone, Debug, Default)]
pub struct Listed<K> {
    /// The object.
    pub object: K,
    /// The creation time.
    pub created: Option<Timestamp>,
    /// The whole object, as JSON.
    pub whole: Value,
}

impl<K: Kind> Listed<K> {
    /// Decodes an object; `None` if it does not have the form of this kind.
    pub fn of(whole: Value) -> Option<Self> {
        let object: K = serde_json::from_value(whole.clone()).ok()?;
        let created = whole["metadata"]["creationTimestamp"].as_str();
        Some(Self { object, created: created.and_then(|time| time.parse().ok()), whole })
    }
}

impl ClusterSnapshot {
    /// Reads the objects of one namespace or of all.
    ///
    /// # Errors
    /// When the API refuses a list or cannot be reached. An API without snapshots is no error.
    pub async fn read(client: &Client, namespace: Option<&str>) -> Result<Self, ApiFailure> {
        let all = None;
        let (claims, volumes, attachments, storage_classes, csi_nodes, pods, warnings) = tokio::try_join!(
            objects(client, namespace),
            objects(client, all),
            objects(client, all),
            objects(client, all),
            objects(client, all),
            list(client, "Pod", "/api/v1", namespace, "pods", None),
            warnings(client, namespace),
        )?;
        let (snapshots, contents, snapshot_classes, group_snapshots) = tokio::try_join!(
            optional(client, namespace),
            optional(client, all),
            optional(client, all),
            group_snapshots(client, namespace)
        )?;
        Ok(Self {
            now: Timestamp::now(),
            claims,
            volumes,
            attachments,
            lacks_snapshots: snapshots.is_none(),
            snapshots: snapshots.unwrap_or_default(),
            contents: contents.unwrap_or_default(),
            storage_classes,
            snapshot_classes: snapshot_classes.unwrap_or_default(),
            group_snapshots,
            csi_nodes,
            pods,
            warnings,
        })
    }

    pub(super) fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<&Listed<PersistentVolumeClaim>> {
        named(&self.claims, Some(namespace), name)
    }

    pub(super) fn volume(&self, name: &str) -> Option<&Listed<PersistentVolume>> {
        named(&self.volumes, None, name)
    }

    pub(super) fn snapshot(&self, namespace: &str, name: &str) -> Option<&Listed<VolumeSnapshot>> {
        named(&self.snapshots, Some(namespace), name)
    }

    pub(super) fn content(&self, name: &str) -> Option<&Listed<VolumeSnapshotContent>> {
        named(&self.contents, None, name)
    }

    pub(super) fn storage_class(&self, name: &str) -> Option<&Listed<StorageClass>> {
        named(&self.storage_classes, None, name)
    }

    pub(super) fn snapshot_class(&self, name: &str) -> Option<&Listed<VolumeSnapshotClass>> {
        named(&self.snapshot_classes, None, name)
    }

    pub(super) fn attachments_of(
        &self,
        volume: &str,
    ) -> impl Iterator<Item = &Listed<VolumeAttachment>> {
        let source = |it: &&Listed<VolumeAttachment>| {
            it.object.spec.source.persistent_volume_name.as_deref() == Some(volume)
        };
        self.attachments.iter().filter(source)
    }

    /// Whether a driver is registered on a node.
    pub(super) fn has_driver(&self, node: &str, driver: &str) -> bool {
        named(&self.csi_nodes, None, node).is_some_and(|it| it.object.node_id(driver).is_some())
    }

    /// Whether a driver is registered on any node.
    pub(super) fn is_anywhere(&self, driver: &str) -> bool {
        self.csi_nodes.iter().any(|it| it.object.node_id(driver).is_some())
    }

    /// The pods that use a claim and have not ended.
    pub(super) fn users(&self, namespace: &str, claim: &str) -> Vec<&Value> {
        let uses = |pod: &&Value| {
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            pod["metadata"]["namespace"].as_str() == Some(namespace)
                && !["Succeeded", "Failed"].contains(&phase)
                && super::pod::claims(pod).any(|used| used == claim)
        };
        self.pods.iter().filter(uses).collect()
    }

    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.pods.iter().find(|pod| {
            let meta = &pod["metadata"];
            meta["namespace"].as_str() == Some(namespace) && meta["name"].as_str() == Some(name)
        })
    }

    pub(super) fn attachment(&self, name: &str) -> Option<&Listed<VolumeAttachment>> {
        named(&self.attachments, None, name)
    }

    /// Why an object is not served, if a sidecar of wharf has reported it while events are kept.
    pub(super) fn not_served(&self, uid: &str) -> Option<&str> {
        let event = self.warnings.iter().find(|event| {
            event["involvedObject"]["uid"].as_str() == Some(uid) && event["reason"] == NOT_SERVED
        })?;
        event["message"].as_str()
    }

    /// A finding about an object, with its last warning.
    pub(super) fn finding<K: Kind>(
        &self,
        kind: &'static str,
        about: &Listed<K>,
        stage: impl Into<String>,
        wait: Option<super::Wait>,
    ) -> Finding {
        let meta = about.object.meta();
        let age = about.created.map(|created| self.now.duration_since(created).as_secs());
        let last_error = wait.as_ref().and_then(|_| self.last_warning(&meta.uid));
        let (who, waits_for) = wait.map(|wait| (wait.who, wait.what)).unzip();
        Finding {
            kind,
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            stage: stage.into(),
            age: age.and_then(|age| u64::try_from(age).ok()),
            who,
            waits_for,
            last_error,
        }
    }

    fn last_warning(&self, uid: &str) -> Option<String> {
        let about = |event: &&Value| event["involvedObject"]["uid"].as_str() == Some(uid);
        let when = |event: &&Value| {
            let time = event["lastTimestamp"].as_str().or(event["eventTime"].as_str());
            time.unwrap_or_default().to_owned()
        };
        let last = self.warnings.iter().filter(about).max_by_key(when)?;
        let text = |key| last[key].as_str().unwrap_or_default();
        Some(format!("{}: {}", text("reason"), text("message")))
    }
}

fn named<'a, K: Kind>(
    among: &'a [Listed<K>],
    namespace: Option<&str>,
    name: &str,
) -> Option<&'a Listed<K>> {
    among.iter().find(|it| {
        let meta = it.object.meta();
        meta.name == name && meta.namespace.as_deref() == namespace
    })
}

async fn objects<K: Kind>(
    client: &Client,
    namespace: Option<&str>,
) -> Result<Vec<Listed<K>>, ApiFailure> {
    let items = list(client, K::KIND, K::GROUP, namespace, K::RESOURCE, None).await?;
    Ok(items.into_iter().filter_map(Listed::of).collect())
}

/// Objects of a kind that may not be installed; `None` if it is not.
async fn optional<K: Kind>(
    client: &Client,
    namespace: Option<&str>,
) -> Result<Option<Vec<Listed<K>>>, ApiFailure> {
    match objects(client, namespace).await {
        Err(ApiFailure::NotFound { .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Group snapshots, in the version that the API serves; none if it serves none or does not allow
/// the list.
async fn group_snapshots(
    client: &Client,
    namespace: Option<&str>,
) -> Result<Vec<Listed<VolumeGroupSnapshot>>, ApiFailure> {
    let Some(at) = served_at::<VolumeGroupSnapshot>(client).await? else { return Ok(Vec::new()) };
    let (kind, resource) = (VolumeGroupSnapshot::KIND, VolumeGroupSnapshot::RESOURCE);
    let items = list(client, kind, &at, namespace, resource, None).await?;
    Ok(items.into_iter().filter_map(Listed::of).collect())
}

/// Warning events of a namespace, or of all. Those about cluster-wide objects, such as volumes, are
/// in a namespace of their own, which not every account may read.
async fn warnings(client: &Client, namespace: Option<&str>) -> Result<Vec<Value>, ApiFailure> {
    let of =
        |namespace| list(client, "Event", "/api/v1", namespace, "events", Some("type=Warning"));
    let mut found = of(namespace).await?;
    if namespace.is_some_and(|it| it != CLUSTER_EVENTS) {
        match of(Some(CLUSTER_EVENTS)).await {
            Err(ApiFailure::Forbidden { .. }) => {}
            more => found.extend(more?),
        }
    }
    Ok(found)
}

/// The namespace of events about cluster-wide objects.
const CLUSTER_EVENTS: &str = "default";

async fn list(
    client: &Client,
    kind: &str,
    group: &str,
    namespace: Option<&str>,
    resource: &str,
    selector: Option<&str>,
) -> Result<Vec<Value>, ApiFailure> {
    let escaped = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    let within = namespace.map(|it| format!("/namespaces/{}", escaped(it))).unwrap_or_default();
    let mut pages = Pages::new(client, kind, &format!("{group}{within}/{resource}"));
    if let Some(selector) = selector {
        pages = pages.selected("fieldSelector", selector);
    }
    let mut items = Vec::new();
    while let Some(page) = pages.next().await? {
        items.extend(page);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// The snapshot of a cluster without objects, which serves VolumeSnapshots or not.
    async fn read(serves_snapshots: bool) -> ClusterSnapshot {
        let api = tower::service_fn(move |request: http::Request<Body>| async move {
            let path = request.uri().path();
            let has_kind = serves_snapshots || !path.contains("/snapshot.");
            let is_found = has_kind && !path.contains("/groupsnapshot.");
            let code = if is_found { 200 } else { 404 };
            let answer = json!({ "code": code, "metadata": {}, "items": [] });
            let answer = Body::from(answer.to_string().into_bytes());
            let answer = Response::builder().status(code).body(answer).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        });
        ClusterSnapshot::read(&Client::new(api, "default"), None).await.unwrap()
    }

    #[tokio::test]
    async fn a_cluster_without_snapshots_is_told_apart_from_one_that_has_none() {
        assert!(read(false).await.lacks_snapshots);
        assert!(!read(true).await.lacks_snapshots);
    }
}
