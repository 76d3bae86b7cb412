//! The journal of a snapshot controller.

use serde_json::{Value, json};

use crate::snapshots::{BEING_DELETED, CONTENT_FINALIZER, CONTENTS, Fixture};

pub(super) const SNAPSHOTS: &str = "volumesnapshots";
pub(super) const SOURCE: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
pub(super) const BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
pub(super) const IN_USE: &str = "kubernetes.io/pvc-protection";
pub(super) const TAKEN: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";

impl Fixture {
    pub(super) fn prepare_line(&self) -> String {
        self.patched_metadata(SNAPSHOTS, json!({ "finalizers": [SOURCE, BOUND] }))
    }

    pub(super) fn claim_lines(&self, finalizers: &[&str]) -> [String; 2] {
        let claim = format!("persistentvolumeclaims/{}", self.name);
        let finalizers = json!(finalizers);
        [format!("GET {claim}"), format!("PUT {claim} finalizers {finalizers}")]
    }

    pub(super) fn content_line(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut content = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1",
            "kind": "VolumeSnapshotContent",
            "metadata": { "name": "snapcontent-UID", "finalizers": [CONTENT_FINALIZER] },
            "spec": {
                "deletionPolicy": "Delete",
                "driver": self.snapshotter.driver,
                "source": { "volumeHandle": "v" },
                "sourceVolumeMode": "Filesystem",
                "volumeSnapshotClassName": self.name,
                "volumeSnapshotRef": {
                    "apiVersion": "snapshot.storage.k8s.io/v1",
                    "kind": "VolumeSnapshot",
                    "name": self.name,
                    "namespace": self.name,
                    "resourceVersion": "*",
                    "uid": "UID",
                },
            },
        });
        change(&mut content);
        format!("POST volumesnapshotcontents {content}")
    }

    pub(super) fn bound_line(&self) -> String {
        let bound =
            json!({ "boundVolumeSnapshotContentName": "snapcontent-UID", "readyToUse": false });
        self.patched_status(SNAPSHOTS, &bound)
    }

    pub(super) fn shown_line(&self) -> String {
        let shown = json!({ "creationTime": "1970-01-01T00:00:01Z", "readyToUse": true, "restoreSize": "5" });
        self.patched_status(SNAPSHOTS, &shown)
    }

    pub(super) fn told_line(&self, message: &str, unusable: bool) -> String {
        let mut status = json!({ "error": { "message": message, "time": "*" } });
        if unusable {
            status["readyToUse"] = json!(false);
        }
        self.patched_status(SNAPSHOTS, &status)
    }

    pub(super) fn word_line(&self, content: &str) -> String {
        let metadata = json!({ "annotations": { BEING_DELETED: "yes" }, "resourceVersion": "*" });
        format!("PATCH volumesnapshotcontents/{content} {}", json!({ "metadata": metadata }))
    }

    pub(super) fn gone_line(&self, content: &str) -> String {
        let options = json!({ "preconditions": { "uid": "UID" } });
        format!("DELETE volumesnapshotcontents/{content} {options}")
    }

    pub(super) fn let_go_line(&self) -> String {
        self.patched_metadata(SNAPSHOTS, json!({ "finalizers": null }))
    }

    /// The snapshotter's write once a snapshot is ready.
    pub(super) async fn fulfil(&self) {
        let taken = json!({
            "snapshotHandle": "v-snap", "creationTime": 1_000_000_000, "restoreSize": 5, "readyToUse": true,
        });
        self.patch_status_of(CONTENTS, &self.content_name().await, taken).await;
    }

    /// Creates a ready snapshot, waits until its claim is unprotected, and clears the journal.
    pub(super) async fn ready(&mut self, change: impl FnOnce(&mut Value)) {
        self.class(change).await;
        self.bound_claim(|_| {}).await;
        self.snapshot(|_| {}).await;
        self.start_controller();
        self.lines(5).await;
        self.fulfil().await;
        self.lines(8).await;
        self.expect_events(["CreatingSnapshot", "SnapshotCreated", "SnapshotReady"]).await;
        self.journal.clear();
    }
}
