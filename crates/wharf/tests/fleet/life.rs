//! The life of a claim, and kube-controller-manager's role in it.

use serde_json::{Value, json};

use crate::{program::Kind, site::Site};

pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
pub(crate) const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

/// A claim with its volume, which everything else is named after.
pub(crate) struct Life<'a> {
    site: &'a Site,
    name: String,
    volume: String,
    node: String,
}

impl<'a> Life<'a> {
    /// Claims a volume and binds it.
    pub(crate) async fn begin(site: &'a Site, name: &str) -> Self {
        Self::claimed(site, name, |_| {}).await
    }

    /// The same with a class of attributes from the beginning.
    pub(crate) async fn begin_with_attributes(site: &'a Site, name: &str) -> Self {
        let class = json!(site.name);
        Self::claimed(site, name, |claim| claim["spec"]["volumeAttributesClassName"] = class).await
    }

    /// The same for a pod that the scheduler has put on a node.
    pub(crate) async fn begin_on(site: &'a Site, name: &str, node: &str) -> Self {
        let life = Self::ask_on(site, name, node).await;
        life.bind().await;
        life
    }

    /// Begins, and takes the step that the controller has a part in.
    pub(crate) async fn up_to(site: &'a Site, kind: Kind, name: &str) -> Self {
        let life = Self::begin(site, name).await;
        match kind {
            Kind::Provisioner => {}
            Kind::Attacher => life.attach().await,
            Kind::Resizer => life.expand().await,
            Kind::Snapshotter | Kind::SnapshotController => life.snapshot().await,
        }
        life
    }

    /// A claim that is filled from the snapshot of this one, and bound.
    pub(crate) async fn restore(&self) -> Self {
        let source =
            json!({ "apiGroup": SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": self.name });
        let name = format!("{}-restored", self.name);
        Self::claimed(self.site, &name, |claim| claim["spec"]["dataSource"] = source).await
    }

    /// The same on another node.
    pub(crate) fn moved_to(self, node: &str) -> Self {
        Self { node: node.to_owned(), ..self }
    }

    pub(crate) async fn ask_to_attach(&self) {
        let source = json!({ "persistentVolumeName": self.volume });
        let spec = json!({ "attacher": self.site.name, "nodeName": self.node, "source": source });
        let attachment = json!({ "metadata": { "name": self.attachment_name() }, "spec": spec });
        self.site.api.create(ATTACHMENTS, "VolumeAttachment", attachment).await;
    }

    pub(crate) async fn attach(&self) {
        self.ask_to_attach().await;
        self.attached().await;
    }

    pub(crate) async fn attached(&self) {
        let path = format!("{ATTACHMENTS}/{}", self.attachment_name());
        self.site.api.wait(&path, |it| it["status"]["attached"] == true).await;
    }

    pub(crate) async fn detach(&self) {
        let path = format!("{ATTACHMENTS}/{}", self.attachment_name());
        self.site.api.delete(&path).await;
        self.site.api.gone(&path).await;
    }

    /// Takes a snapshot and waits until it can be used.
    pub(crate) async fn snapshot(&self) {
        let path = self.ask_for_snapshot().await;
        self.site.api.wait(&path, |it| it["status"]["readyToUse"] == true).await;
    }

    /// Makes the VolumeSnapshot, and gives its path.
    pub(crate) async fn ask_for_snapshot(&self) -> String {
        let source = json!({ "persistentVolumeClaimName": self.name });
        let spec = json!({ "volumeSnapshotClassName": self.site.name, "source": source });
        let snapshot = json!({ "metadata": { "name": self.name }, "spec": spec });
        self.site.api.create(&self.snapshots(), "VolumeSnapshot", snapshot).await;
        format!("{}/{}", self.snapshots(), self.name)
    }

    pub(crate) async fn delete_snapshot(&self) {
        let (api, path) = (&self.site.api, format!("{}/{}", self.snapshots(), self.name));
        let snapshot = api.get(&path).await.unwrap();
        let content = snapshot["status"]["boundVolumeSnapshotContentName"].as_str().unwrap();
        api.delete(&path).await;
        api.gone(&path).await;
        api.gone(&format!("{CONTENTS}/{content}")).await;
    }

    /// Grows the claim to two of what it began with.
    pub(crate) async fn expand(&self) {
        let (api, path) = (&self.site.api, self.claim());
        let requests = json!({ "resources": { "requests": { "storage": "2Gi" } } });
        api.patch(&path, &json!({ "spec": requests })).await;
        api.wait(&path, |it| it["status"]["capacity"]["storage"] == "2Gi").await;
    }

    /// Gives the claim the class of attributes.
    pub(crate) async fn modify(&self) {
        let (api, path) = (&self.site.api, self.claim());
        let class = &self.site.name;
        api.patch(&path, &json!({ "spec": { "volumeAttributesClassName": class } })).await;
        api.wait(&path, |it| it["status"]["currentVolumeAttributesClassName"] == **class).await;
    }

    /// Where its objects are; the content's name is read from the snapshot.
    pub(crate) async fn paths(&self) -> Vec<String> {
        let snapshot = format!("{}/{}", self.snapshots(), self.name);
        let mut paths = vec![
            self.claim(),
            format!("{VOLUMES}/{}", self.volume),
            format!("{ATTACHMENTS}/{}", self.attachment_name()),
            snapshot.clone(),
        ];
        let object = self.site.api.get(&snapshot).await.unwrap_or_default();
        let content = object["status"]["boundVolumeSnapshotContentName"].as_str();
        paths.extend(content.map(|name| format!("{CONTENTS}/{name}")));
        paths
    }

    /// Sees to it that nobody could delete what is in use: the volume that is attached, and its
    /// snapshot.
    pub(crate) async fn assert_protected(&self) {
        let attacher = format!("external-attacher/{}", self.site.name);
        let bound = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
        let volume = format!("{VOLUMES}/{}", self.volume);
        for (path, wanted) in [
            (format!("{ATTACHMENTS}/{}", self.attachment_name()), attacher.as_str()),
            (volume.clone(), &attacher),
            (volume, "external-provisioner.volume.kubernetes.io/finalizer"),
            (format!("{}/{}", self.snapshots(), self.name), bound),
        ] {
            let object = self.site.api.get(&path).await.unwrap();
            let finalizers = object["metadata"]["finalizers"].as_array().unwrap();
            assert!(finalizers.iter().any(|it| it == wanted), "{path}: {finalizers:?}");
        }
    }

    /// Deletes the claim, which no pod uses: nobody of Kubernetes holds it back.
    pub(crate) async fn delete_claim(&self) {
        let (api, claim) = (&self.site.api, self.claim());
        api.delete(&claim).await;
        api.unprotect(&claim, "kubernetes.io/pvc-protection").await;
    }

    /// Deletes the claim and waits until it and its volume are gone.
    pub(crate) async fn end(self) {
        let (api, claim) = (&self.site.api, self.claim());
        self.delete_claim().await;
        api.gone(&claim).await;
        self.released().await;
    }

    /// Waits until the volume of a claim that is gone is gone, too.
    pub(crate) async fn released(&self) {
        let api = &self.site.api;
        let volume = format!("{VOLUMES}/{}", self.volume);
        set_phase(self.site, &volume, "Released").await;
        api.unprotect(&volume, "kubernetes.io/pv-protection").await;
        api.gone(&volume).await;
    }

    /// Ends what [`up_to`](Self::up_to) began.
    pub(crate) async fn end_from(self, kind: Kind) {
        match kind {
            Kind::Attacher => self.detach().await,
            Kind::Snapshotter | Kind::SnapshotController => self.delete_snapshot().await,
            Kind::Provisioner | Kind::Resizer => {}
        }
        self.end().await;
    }

    /// All of it.
    pub(crate) async fn whole(site: &Site, name: &str) {
        let life = Life::begin(site, name).await;
        life.attach().await;
        life.snapshot().await;
        let restored = life.restore().await;
        life.expand().await;
        life.modify().await;
        life.detach().await;
        life.delete_snapshot().await;
        life.end().await;
        restored.end().await;
    }

    /// Claims a volume, and does not wait for it.
    pub(crate) async fn ask(site: &'a Site, name: &str) -> Self {
        Self::asked(site, name, |_| {}).await
    }

    /// The same for a pod that the scheduler has put on a node.
    pub(crate) async fn ask_on(site: &'a Site, name: &str, node: &str) -> Self {
        let pick = |claim: &mut Value| {
            let annotations = &mut claim["metadata"]["annotations"];
            annotations["volume.kubernetes.io/selected-node"] = json!(node);
        };
        Self::asked(site, name, pick).await.moved_to(node)
    }

    async fn claimed(site: &'a Site, name: &str, change: impl FnOnce(&mut Value)) -> Self {
        let life = Self::asked(site, name, change).await;
        life.bind().await;
        life
    }

    async fn asked(site: &'a Site, name: &str, change: impl FnOnce(&mut Value)) -> Self {
        let claims = claims(site);
        let annotations = json!({ "volume.kubernetes.io/storage-provisioner": site.name });
        let mut claim = json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": site.name,
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        change(&mut claim);
        let claim = site.api.create(&claims, "PersistentVolumeClaim", claim).await;
        let volume = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
        Self { site, name: name.to_owned(), volume, node: site.name.clone() }
    }

    /// Binds the claim to the volume that was made for it, once it is there.
    pub(crate) async fn bind(&self) {
        let (api, claim) = (&self.site.api, self.claim());
        let path = format!("{VOLUMES}/{}", self.volume);
        let volume = api.wait(&path, |it| it["spec"]["claimRef"]["uid"].is_string()).await;
        api.patch(&claim, &json!({ "spec": { "volumeName": self.volume } })).await;
        let (capacity, modes) = (&volume["spec"]["capacity"], &volume["spec"]["accessModes"]);
        let status = json!({ "phase": "Bound", "capacity": capacity, "accessModes": modes });
        api.patch(&format!("{claim}/status"), &json!({ "status": status })).await;
        set_phase(self.site, &path, "Bound").await;
    }

    /// The name of its volume.
    pub(crate) fn volume(&self) -> &str {
        &self.volume
    }

    /// The path of its claim.
    pub(crate) fn claim(&self) -> String {
        format!("{}/{}", claims(self.site), self.name)
    }

    fn snapshots(&self) -> String {
        format!("/apis/{SNAPSHOT_GROUP}/v1/namespaces/{}/volumesnapshots", self.site.name)
    }

    /// Attachments have no namespace.
    fn attachment_name(&self) -> String {
        format!("{}-{}", self.node, self.name)
    }
}

fn claims(site: &Site) -> String {
    format!("/api/v1/namespaces/{}/persistentvolumeclaims", site.name)
}

async fn set_phase(site: &Site, volume: &str, phase: &str) {
    site.api.patch(&format!("{volume}/status"), &json!({ "status": { "phase": phase } })).await;
}
