//! The journal of a snapshotter.

use serde_json::{Value, json};

use crate::snapshots::{BEING_CREATED, CONTENT_FINALIZER, Fixture};

const RESOURCE: &str = "volumesnapshotcontents";

impl Fixture {
    pub(super) fn mark_line(&self) -> String {
        self.annotate_line(&json!("yes"))
    }

    /// The mark of a call with parameters.
    pub(super) fn mark_line_of(&self, parameters: &Value) -> String {
        self.annotate_line(&json!(parameters.to_string()))
    }

    pub(super) fn unmark_line(&self) -> String {
        self.annotate_line(&Value::Null)
    }

    pub(super) fn create_line(&self) -> String {
        "CreateSnapshot snapshot-1-2 v".to_owned()
    }

    pub(super) fn taken_line(&self, ready: bool) -> String {
        let status = json!({
            "creationTime": 1_000_000_000, "readyToUse": ready, "restoreSize": 5, "snapshotHandle": "v-snap",
        });
        self.patched_status(RESOURCE, &status)
    }

    pub(super) fn ready_line(&self) -> String {
        self.patched_status(RESOURCE, &json!({ "readyToUse": true }))
    }

    pub(super) fn error_line(&self, message: &str) -> String {
        let error = json!({ "message": message, "time": "*" });
        self.patched_status(RESOURCE, &json!({ "error": error, "readyToUse": false }))
    }

    pub(super) fn release_line(&self) -> String {
        let path = "/metadata/finalizers/0";
        let steps = json!([
            { "op": "test", "path": path, "value": CONTENT_FINALIZER },
            { "op": "remove", "path": path },
        ]);
        format!("PATCH {RESOURCE}/{} {steps}", self.name)
    }

    fn annotate_line(&self, value: &Value) -> String {
        self.patched_metadata(RESOURCE, json!({ "annotations": { BEING_CREATED: value } }))
    }
}
