//! One call of the script.

use serde_json::{Value, json};

/// What a call is about, its method, and its request.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    pub(super) request: Value,
    /// Whether the runtime fails it.
    pub(super) fails: bool,
}

impl Step {
    pub(super) fn new(name: &'static str, method: &'static str, request: Value) -> Self {
        Step { name, method, request, fails: false }
    }

    /// The same call, which the runtime fails.
    pub(super) fn failing(self) -> Step {
        Step { fails: true, ..self }
    }
}

pub(super) fn run(name: &'static str, pod: &Value) -> Step {
    Step::new(name, "RunPodSandbox", json!({ "config": pod }))
}

pub(super) fn create(name: &'static str, sandbox: &str, pod: &Value, linux: &Value) -> Step {
    let container = json!({
        "metadata": { "name": "main" },
        "envs": [{ "key": "Z", "value": "MQ==" }, { "key": "EMPTY" }],
        "linux": linux,
    });
    let request = json!({ "pod_sandbox_id": sandbox, "config": container, "sandbox_config": pod });
    Step::new(name, "CreateContainer", request)
}

pub(super) fn update(name: &'static str, container: &str, linux: &Value) -> Step {
    let request = json!({ "container_id": container, "linux": linux });
    Step::new(name, "UpdateContainerResources", request)
}

/// A call that names a container and says no more.
pub(super) fn id(name: &'static str, method: &'static str, container: &str) -> Step {
    Step::new(name, method, json!({ "container_id": container }))
}

/// A call that names a sandbox and says no more.
pub(super) fn sandbox(name: &'static str, method: &'static str, pod: &str) -> Step {
    Step::new(name, method, json!({ "pod_sandbox_id": pod }))
}
