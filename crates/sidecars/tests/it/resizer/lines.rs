//! The writes and calls of an expansion.

use serde_json::{Value, json};

use super::fixture::{Fixture, GI};

impl Fixture {
    /// The journal of an expansion to so many Gi without the node.
    pub(crate) fn grow_lines(&self, size: i64) -> [String; 4] {
        [
            self.begin_line(size),
            self.expand_line(size),
            self.volume_line(
                &json!({ "spec": { "capacity": { "storage": format!("{size}Gi") } } }),
            ),
            self.finish_line(size),
        ]
    }

    pub(crate) fn begin_line(&self, size: i64) -> String {
        self.claim_line(&json!({
            "metadata": { "resourceVersion": "*" },
            "status": {
                "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
                "allocatedResources": { "storage": format!("{size}Gi") },
                "conditions": [condition("Resizing", None)],
            },
        }))
    }

    pub(crate) fn expand_line(&self, size: i64) -> String {
        format!("ControllerExpandVolume {}-handle {}", self.name, size * GI)
    }

    pub(crate) fn finish_line(&self, size: i64) -> String {
        let key = "volume.kubernetes.io/node-expansion-not-required";
        self.claim_line(&json!({
            "metadata": { "annotations": { key: "true" }, "resourceVersion": "*" },
            "status": {
                "allocatedResourceStatuses": { "storage": null },
                "capacity": { "storage": format!("{size}Gi") },
                "conditions": [{ "$patch": "delete", "type": "Resizing" }],
            },
        }))
    }

    pub(crate) fn pending_line(&self) -> String {
        let message =
            "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";
        self.claim_line(&json!({
            "metadata": { "resourceVersion": "*" },
            "status": {
                "allocatedResourceStatuses": { "storage": "NodeResizePending" },
                "conditions": [condition("FileSystemResizePending", Some(message))],
            },
        }))
    }

    /// The saved error of the driver.
    pub(crate) fn refused_line(&self, error: &str, infeasible: bool) -> String {
        let message = format!("failed to expand pvc with {error}");
        let mut status =
            json!({ "conditions": [condition("ControllerResizeError", Some(&message))] });
        if infeasible {
            status["allocatedResourceStatuses"] =
                json!({ "storage": "ControllerResizeInfeasible" });
        }
        self.claim_line(&json!({ "status": status }))
    }

    pub(crate) fn claim_line(&self, patch: &Value) -> String {
        let name = self.name;
        format!("PATCH namespaces/default/persistentvolumeclaims/{name}/status {patch}")
    }

    pub(crate) fn volume_line(&self, patch: &Value) -> String {
        format!("PATCH persistentvolumes/{} {patch}", self.name)
    }
}

/// A condition of an expansion, as written.
pub(crate) fn condition(kind: &str, message: Option<&str>) -> Value {
    json!({
        "lastProbeTime": null, "lastTransitionTime": "*", "message": message, "reason": null,
        "status": "True", "type": kind,
    })
}
