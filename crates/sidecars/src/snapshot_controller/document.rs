//! Edits documents of contents and claims.

use serde_json::{Map, Value, json};
use wharf_cluster::{
    CsiVolumeSource, InternedStr, Meta, Patch, SecretReference, VolumeSnapshot,
    VolumeSnapshotClass, VolumeSnapshotContent,
};
use wharf_facts::{annotation, finalizer, label};

use super::decide::{content_name, needs_protection};

/// The data for the content of a snapshot that is to be taken.
pub(super) struct NewContent<'a> {
    pub(super) snapshot: &'a VolumeSnapshot,
    pub(super) class: &'a VolumeSnapshotClass,
    pub(super) csi: &'a CsiVolumeSource,
    /// The secret for CreateSnapshot and DeleteSnapshot.
    pub(super) secret: Option<SecretReference>,
    /// The node whose snapshotter serves it.
    pub(super) node: Option<String>,
    /// The volume mode of the source.
    pub(super) volume_mode: Option<&'a str>,
}

impl NewContent<'_> {
    /// The object. It is created with its finalizer, so that nobody can delete it before it has
    /// one.
    pub(super) fn document(&self) -> Value {
        let of = &self.snapshot.metadata;
        let mut metadata = json!({
            "name": content_name(self.snapshot),
            "finalizers": [finalizer::CONTENT_BOUND_PROTECTION],
        });
        if let Some(SecretReference { name, namespace }) = &self.secret {
            metadata["annotations"] = json!({
                annotation::SNAPSHOT_DELETION_SECRET_NAME: name,
                annotation::SNAPSHOT_DELETION_SECRET_NAMESPACE: namespace,
            });
        }
        if let Some(node) = &self.node {
            metadata["labels"] = json!({ label::SNAPSHOT_MANAGED_BY: node });
        }
        let version = "snapshot.storage.k8s.io/v1";
        let mut spec = json!({
            "volumeSnapshotRef": {
                "apiVersion": version,
                "kind": "VolumeSnapshot",
                "namespace": of.namespace,
                "name": of.name,
                "uid": of.uid,
                "resourceVersion": of.resource_version,
            },
            "source": { "volumeHandle": self.csi.volume_handle },
            "volumeSnapshotClassName": self.class.metadata.name,
            "deletionPolicy": self.class.deletion_policy,
            "driver": self.class.driver,
        });
        if let Some(mode) = self.volume_mode {
            spec["sourceVolumeMode"] = json!(mode);
        }
        json!({
            "apiVersion": version,
            "kind": "VolumeSnapshotContent",
            "metadata": metadata,
            "spec": spec,
        })
    }
}

/// Binds an existing content to its snapshot, and adds its finalizer. `None` if it is complete.
pub(super) fn bind(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> Option<Patch> {
    let mut spec = Map::new();
    if content.spec.volume_snapshot_ref.uid.is_empty() {
        let reference = json!({ "uid": snapshot.metadata.uid });
        spec.insert("volumeSnapshotRef".to_owned(), reference);
    }
    if let (None, Some(class)) =
        (&content.spec.volume_snapshot_class_name, &snapshot.spec.volume_snapshot_class_name)
    {
        spec.insert("volumeSnapshotClassName".to_owned(), json!(class));
    }
    if spec.is_empty() {
        return protect(content);
    }
    let mut metadata = json!({ "resourceVersion": content.metadata.resource_version });
    let finalizer = finalizer::CONTENT_BOUND_PROTECTION;
    if !content.metadata.deleting && !content.metadata.has_finalizer(finalizer) {
        metadata["finalizers"] = json!(with(&content.metadata, &[finalizer]));
    }
    Some(Patch::Merge(json!({ "metadata": metadata, "spec": spec })))
}

/// Adds the finalizer to a bound content. `None` if it has it.
pub(super) fn protect(content: &VolumeSnapshotContent) -> Option<Patch> {
    let finalizer = finalizer::CONTENT_BOUND_PROTECTION;
    needs_protection(content).then(|| Patch::add_finalizer(&content.metadata, finalizer))
}

/// Annotates a content so that the snapshotter deletes the snapshot. `None` if it is annotated.
pub(super) fn mark_deleted(content: &VolumeSnapshotContent) -> Option<Patch> {
    let key = annotation::SNAPSHOT_BEING_DELETED;
    let unsaid = content.metadata.annotations.get(key).is_none();
    unsaid.then(|| Patch::metadata(&content.metadata, json!({ "annotations": { key: "yes" } })))
}

/// Adds the finalizer to a claim while a snapshot is taken of it, if it has this UID and is not
/// being deleted.
pub(super) fn protect_claim(claim: &mut Value, uid: &str) {
    let metadata = &mut claim["metadata"];
    if metadata["uid"] != uid || !metadata["deletionTimestamp"].is_null() {
        return;
    }
    let finalizer = json!(finalizer::PVC_SNAPSHOT_PROTECTION);
    match metadata["finalizers"].as_array_mut() {
        Some(finalizers) if finalizers.contains(&finalizer) => {}
        Some(finalizers) => finalizers.push(finalizer),
        None => metadata["finalizers"] = json!([finalizer]),
    }
}

/// Removes the finalizer from a claim.
pub(super) fn release_claim(claim: &mut Value, uid: &str) {
    let metadata = &mut claim["metadata"];
    if metadata["uid"] == uid
        && let Some(finalizers) = metadata["finalizers"].as_array_mut()
    {
        finalizers.retain(|it| it != finalizer::PVC_SNAPSHOT_PROTECTION);
    }
}

/// The finalizers of an object and those of `more` that it lacks.
pub(super) fn with<'a>(metadata: &'a Meta, more: &[&'a str]) -> Vec<&'a str> {
    let mut all: Vec<&str> = metadata.finalizers.iter().map(InternedStr::as_str).collect();
    all.extend(more.iter().filter(|it| !metadata.has_finalizer(it)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> VolumeSnapshot {
        let metadata =
            json!({ "name": "s", "namespace": "ns", "uid": "u", "resourceVersion": "7" });
        let spec = json!({ "volumeSnapshotClassName": "gold" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn content(change: impl FnOnce(&mut Value)) -> VolumeSnapshotContent {
        let mut content = json!({
            "metadata": { "resourceVersion": "3", "finalizers": ["other"] },
            "spec": { "volumeSnapshotRef": { "name": "s", "namespace": "ns" } },
        });
        change(&mut content);
        serde_json::from_value(content).unwrap()
    }

    #[test]
    fn a_content_says_all_that_a_snapshotter_needs() {
        let class: VolumeSnapshotClass = serde_json::from_value(
            json!({ "metadata": { "name": "gold" }, "driver": "d", "deletionPolicy": "Retain" }),
        )
        .unwrap();
        let csi = CsiVolumeSource { volume_handle: "v".to_owned(), ..CsiVolumeSource::default() };
        let secret = SecretReference { name: "n".to_owned(), namespace: "m".to_owned() };
        let (snapshot, node) = (snapshot(), Some("node".to_owned()));
        let mut new = NewContent {
            snapshot: &snapshot,
            class: &class,
            csi: &csi,
            secret: Some(secret),
            node,
            volume_mode: Some("Block"),
        };
        let document = new.document();
        let metadata = json!({
            "name": "snapcontent-u",
            "finalizers": [finalizer::CONTENT_BOUND_PROTECTION],
            "annotations": {
                "snapshot.storage.kubernetes.io/deletion-secret-name": "n",
                "snapshot.storage.kubernetes.io/deletion-secret-namespace": "m",
            },
            "labels": { "snapshot.storage.kubernetes.io/managed-by": "node" },
        });
        assert_eq!(document["metadata"], metadata);
        let spec = json!({
            "volumeSnapshotRef": {
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "namespace": "ns", "name": "s", "uid": "u", "resourceVersion": "7",
            },
            "source": { "volumeHandle": "v" },
            "volumeSnapshotClassName": "gold",
            "deletionPolicy": "Retain",
            "driver": "d",
            "sourceVolumeMode": "Block",
        });
        assert_eq!(document["spec"], spec);
        new.node = None;
        assert!(new.document()["metadata"].get("labels").is_none());
    }

    #[test]
    fn one_patch_binds_and_protects() {
        let Some(Patch::Merge(patch)) = bind(&content(|_| {}), &snapshot()) else { panic!() };
        let finalizers = ["other", finalizer::CONTENT_BOUND_PROTECTION];
        let expected = json!({
            "metadata": { "resourceVersion": "3", "finalizers": finalizers },
            "spec": { "volumeSnapshotRef": { "uid": "u" }, "volumeSnapshotClassName": "gold" },
        });
        assert_eq!(patch, expected);
        let bound = content(|it| {
            it["spec"]["volumeSnapshotRef"]["uid"] = json!("u");
            it["spec"]["volumeSnapshotClassName"] = json!("silver");
            it["metadata"]["finalizers"] = json!([finalizer::CONTENT_BOUND_PROTECTION]);
        });
        assert_eq!(bind(&bound, &snapshot()), None);
    }

    #[test]
    fn claims_are_held_once_and_not_on_their_way_out() {
        let ours = finalizer::PVC_SNAPSHOT_PROTECTION;
        let mut claim = json!({ "metadata": { "uid": "u" } });
        protect_claim(&mut claim, "other");
        assert!(claim["metadata"]["finalizers"].is_null());
        protect_claim(&mut claim, "u");
        protect_claim(&mut claim, "u");
        assert_eq!(claim["metadata"]["finalizers"], json!([ours]));
        release_claim(&mut claim, "u");
        assert_eq!(claim["metadata"]["finalizers"], json!([]));
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        protect_claim(&mut claim, "u");
        assert_eq!(claim["metadata"]["finalizers"], json!([]));
    }
}
