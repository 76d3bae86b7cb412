//! The script of calls: pods of koordinator's classes, from creation to removal.

use serde_json::{Value, json};

use super::step::{Step, create, id, run, sandbox, update};

/// The runtime calls the first sandbox `pod-1` and the first container `container-1`, and so on.
pub(super) fn script() -> Vec<Step> {
    let parts =
        [plain(), latency_sensitive(), best_effort(), reserved(), gpu(), skipped(), troubled()];
    parts.into_iter().flatten().collect()
}

/// A pod with everything that kubelet may send, of no class.
fn plain() -> Vec<Step> {
    let pod = json!({
        "metadata": { "name": "plain", "uid": "u-1", "namespace": "n", "attempt": 2 },
        "hostname": "plain",
        "log_directory": "/var/log/pods/plain",
        "dns_config": { "servers": ["10.0.0.10"], "options": ["ndots:5"] },
        "port_mappings": [{ "container_port": 80, "host_port": 8080 }],
        "labels": { "app": "plain" },
        "annotations": { "note": "from kubelet" },
        "linux": {
            "cgroup_parent": "/kubepods/burstable/podu-1",
            "security_context": {
                "namespace_options": { "pid": "CONTAINER", "userns_options": { "mode": "NODE" } },
            },
            "sysctls": { "net.core.somaxconn": "1024" },
            "overhead": { "cpu_shares": 10 },
            "resources": { "cpu_shares": 512 },
        },
    });
    let container = json!({
        "metadata": { "name": "main", "attempt": 3 },
        "image": { "image": "busybox" },
        "command": ["sh"],
        "args": ["-c", "true"],
        // Values are bytes, which JSON has in base64.
        "envs": [
            { "key": "B", "value": "Mg==" },
            { "key": "A", "value": "MQ==" },
            { "key": "B", "value": "Mw==" },
        ],
        "mounts": [{
            "container_path": "/host", "host_path": "/",
            "readonly": true, "recursive_read_only": true,
        }],
        "labels": { "io.kubernetes.container.name": "main" },
        "annotations": { "hash": "1a2b" },
        "linux": { "resources": all(), "security_context": { "privileged": true } },
        "CDI_devices": [{ "name": "vendor.example/gpu=0" }],
    });
    let few = json!({ "memory_limit_in_bytes": 5_000_000, "unified": { "memory.high": "4" } });
    let mut annotated = update("update annotated", "container-1", &few);
    annotated.request["annotations"] = json!({ "update": "annotated" });
    let mut run = run("run plain", &pod);
    run.request["runtime_handler"] = "runc".into();
    let mut stop = id("stop plain", "StopContainer", "container-1");
    stop.request["timeout"] = 30.into();
    vec![
        run,
        Step::new(
            "create plain",
            "CreateContainer",
            json!({ "pod_sandbox_id": "pod-1", "config": container, "sandbox_config": pod }),
        ),
        id("start plain", "StartContainer", "container-1"),
        update("update all", "container-1", &all_others()),
        update("update cpuset", "container-1", &json!({ "cpuset_cpus": "1" })),
        annotated,
        stop,
        id("stop plain again", "StopContainer", "container-1"),
        id("start plain again", "StartContainer", "container-1"),
        id("remove plain", "RemoveContainer", "container-1"),
        sandbox("stop pod plain", "StopPodSandbox", "pod-1"),
        sandbox("stop pod plain again", "StopPodSandbox", "pod-1"),
        sandbox("remove pod plain", "RemovePodSandbox", "pod-1"),
    ]
}

/// Class LS: koordlet gives it the shared cpus. Its containers end by themselves.
fn latency_sensitive() -> Vec<Step> {
    let labels = json!({ "koordinator.sh/qosClass": "LS" });
    let pod = pod("ls", "/kubepods/burstable/podls", &labels, &json!({}));
    let few = json!({ "cpu_shares": 20, "oom_score_adj": 30 });
    let mut bare = update("update ls without linux", "container-3", &json!({}));
    bare.request = json!({ "container_id": "container-3" });
    vec![
        run("run ls", &pod),
        create("create ls", "pod-2", &pod, &json!({ "resources": all() })),
        id("start ls", "StartContainer", "container-2"),
        update("update ls", "container-2", &json!({ "cpuset_cpus": "0" })),
        create("create ls without resources", "pod-2", &pod, &json!({ "security_context": {} })),
        update("update ls without resources", "container-3", &few),
        bare,
        id("remove ls", "RemoveContainer", "container-2"),
        sandbox("stop pod ls", "StopPodSandbox", "pod-2"),
        id("remove ls without resources", "RemoveContainer", "container-3"),
        sandbox("remove pod ls", "RemovePodSandbox", "pod-2"),
    ]
}

/// Class BE with batch resources: koordlet sets shares, quota and memory, and takes the cpuset
/// away.
fn best_effort() -> Vec<Step> {
    let labels = json!({ "koordinator.sh/qosClass": "BE" });
    let spec = json!({ "containers": { "main": {
        "requests": { "kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi" },
        "limits": { "kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "2Gi" },
    } } });
    let annotations = json!({ "node.koordinator.sh/extended-resource-spec": spec.to_string() });
    let pod = pod("be", "/kubepods/besteffort/podbe", &labels, &annotations);
    vec![
        run("run be", &pod),
        create("create be", "pod-3", &pod, &json!({ "resources": all() })),
        id("start be", "StartContainer", "container-4"),
        update("update be", "container-4", &all_others()),
        id("stop be", "StopContainer", "container-4"),
        sandbox("stop pod be", "StopPodSandbox", "pod-3"),
    ]
}

/// Class LSR with cpus of its own: koordlet sets them, and lifts the quota.
fn reserved() -> Vec<Step> {
    let labels = json!({ "koordinator.sh/qosClass": "LSR" });
    let annotations = json!({ "scheduling.koordinator.sh/resource-status": r#"{"cpuset":"2-3"}"# });
    let pod = pod("lsr", "/kubepods/podlsr", &labels, &annotations);
    vec![
        run("run lsr", &pod),
        create("create lsr", "pod-4", &pod, &json!({ "resources": all() })),
        update("update lsr", "container-5", &json!({ "cpu_quota": 70_000 })),
        id("stop lsr", "StopContainer", "container-5"),
        sandbox("stop pod lsr", "StopPodSandbox", "pod-4"),
    ]
}

/// Devices: koordlet adds a variable.
fn gpu() -> Vec<Step> {
    let allocated = json!({ "gpu": [{ "minor": 0 }, { "minor": 2 }] }).to_string();
    let annotations = json!({ "scheduling.koordinator.sh/device-allocated": allocated });
    let pod = pod("gpu", "/kubepods/podgpu", &json!({}), &annotations);
    let linux = json!({ "resources": all() });
    let mut bare = create("create gpu without env", "pod-5", &pod, &linux);
    bare.request["config"]["envs"] = json!([]);
    vec![run("run gpu", &pod), create("create gpu", "pod-5", &pod, &linux), bare]
}

/// A pod that hook servers are not asked about.
fn skipped() -> Vec<Step> {
    let labels = json!({ "runtimeproxy.koordinator.sh/skip-hookserver": "true" });
    let pod = pod("skipped", "/kubepods/podskipped", &labels, &json!({}));
    vec![
        run("run skipped", &pod),
        create("create skipped", "pod-6", &pod, &json!({ "resources": all() })),
        update("update skipped", "container-8", &all_others()),
        id("stop skipped", "StopContainer", "container-8"),
        sandbox("stop pod skipped", "StopPodSandbox", "pod-6"),
    ]
}

/// Containers that nobody knows, and calls that the runtime fails.
fn troubled() -> Vec<Step> {
    let pod = pod("troubled", "/kubepods/podtroubled", &json!({}), &json!({}));
    vec![
        update("update unknown", "nobody", &all_others()),
        id("stop unknown", "StopContainer", "nobody"),
        run("run failing", &pod).failing(),
        run("run troubled", &pod),
        create("create failing", "pod-7", &pod, &json!({})).failing(),
        create("create troubled", "pod-7", &pod, &json!({ "resources": all() })),
        id("start failing", "StartContainer", "container-9").failing(),
        update("update failing", "container-9", &all_others()).failing(),
        update("update after failing", "container-9", &json!({ "cpu_period": 50_000 })),
        id("stop failing", "StopContainer", "container-9").failing(),
        id("stop after failing", "StopContainer", "container-9"),
        sandbox("stop pod failing", "StopPodSandbox", "pod-7").failing(),
        sandbox("stop pod after failing", "StopPodSandbox", "pod-7"),
    ]
}

fn pod(name: &str, cgroup_parent: &str, labels: &Value, annotations: &Value) -> Value {
    json!({
        "metadata": { "name": name, "uid": format!("u-{name}"), "namespace": "n" },
        "labels": labels,
        "annotations": annotations,
        "linux": { "cgroup_parent": cgroup_parent },
    })
}

/// Resources with every field set.
fn all() -> Value {
    json!({
        "cpu_period": 100_000,
        "cpu_quota": 40_000,
        "cpu_shares": 204,
        "memory_limit_in_bytes": 1_000_000,
        "oom_score_adj": 500,
        "cpuset_cpus": "0-1",
        "cpuset_mems": "0",
        "hugepage_limits": [{ "page_size": "2MB", "limit": 2_000_000 }],
        "unified": { "memory.low": "1", "memory.high": "3" },
        "memory_swap_limit_in_bytes": 1_500_000,
    })
}

/// Resources with every field set to something else.
fn all_others() -> Value {
    json!({
        "cpu_period": 90_000,
        "cpu_quota": -1,
        "cpu_shares": 300,
        "memory_limit_in_bytes": 3_000_000,
        "oom_score_adj": -900,
        "cpuset_cpus": "0",
        "cpuset_mems": "1",
        "hugepage_limits": [{ "page_size": "1GB", "limit": 1_000_000_000 }],
        "unified": { "memory.low": "2", "cpu.weight": "50" },
        "memory_swap_limit_in_bytes": 3_500_000,
    })
}
