//! Verbose status, in the format and size of containerd's.

use serde_json::{Value, json};
use wharf_proto::cri;

/// The status of a pod.
pub(super) fn pod(id: &str, config: &cri::PodSandboxConfig) -> String {
    let parent = config.linux.as_ref().map(|linux| &linux.cgroup_parent);
    let document = json!({
        "pid": 4711,
        "processStatus": "running",
        "snapshotKey": id,
        "snapshotter": "overlayfs",
        "image": "registry.k8s.io/pause:3.10",
        "runtimeType": "io.containerd.runc.v2",
        "config": {
            "metadata": metadata(config.metadata.as_ref()),
            "hostname": config.hostname,
            "log_directory": config.log_directory,
            "labels": config.labels,
            "annotations": config.annotations,
            "linux": { "cgroup_parent": parent },
        },
        "runtimeSpec": spec(id, parent.map_or("", String::as_str), &[]),
    });
    document.to_string()
}

/// The status of a container in a pod with this configuration.
pub(super) fn container(
    id: &str,
    config: &cri::ContainerConfig,
    pod: &cri::PodSandboxConfig,
) -> String {
    let envs: Vec<(String, String)> = config
        .envs
        .iter()
        .map(|env| (env.key.clone(), String::from_utf8_lossy(&env.value).into_owned()))
        .collect();
    let env = |(key, value): &(String, String)| json!({ "key": key, "value": value });
    let mount = |own: &cri::Mount| json!({ "container_path": own.container_path, "host_path": own.host_path });
    let resources = config.linux.as_ref().and_then(|linux| linux.resources.as_ref()).map(|own| {
        json!({
            "cpu_period": own.cpu_period,
            "cpu_quota": own.cpu_quota,
            "cpu_shares": own.cpu_shares,
            "memory_limit_in_bytes": own.memory_limit_in_bytes,
            "oom_score_adj": own.oom_score_adj,
        })
    });
    let parent = pod.linux.as_ref().map_or("", |linux| &linux.cgroup_parent);
    let document = json!({
        "sandboxID": pod.metadata.as_ref().map(|metadata| &metadata.uid),
        "pid": 4712,
        "removing": false,
        "snapshotKey": id,
        "snapshotter": "overlayfs",
        "runtimeType": "io.containerd.runc.v2",
        "config": {
            "metadata": config.metadata.as_ref().map(|own| json!({ "name": own.name })),
            "image": { "image": config.image.as_ref().map(|image| &image.image) },
            "command": config.command,
            "args": config.args,
            "envs": envs.iter().map(env).collect::<Vec<_>>(),
            "mounts": config.mounts.iter().map(mount).collect::<Vec<_>>(),
            "labels": config.labels,
            "annotations": config.annotations,
            "log_path": config.log_path,
            "linux": { "resources": resources },
        },
        "runtimeSpec": spec(id, parent, &envs),
    });
    document.to_string()
}

fn metadata(of: Option<&cri::PodSandboxMetadata>) -> Option<Value> {
    of.map(|own| json!({ "name": own.name, "uid": own.uid, "namespace": own.namespace }))
}

/// The OCI specification, the larger part of containerd's status.
fn spec(id: &str, parent: &str, envs: &[(String, String)]) -> Value {
    const CAPABILITIES: [&str; 14] = [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FSETID",
        "CAP_FOWNER",
        "CAP_MKNOD",
        "CAP_NET_RAW",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SETFCAP",
        "CAP_SETPCAP",
        "CAP_NET_BIND_SERVICE",
        "CAP_SYS_CHROOT",
        "CAP_KILL",
        "CAP_AUDIT_WRITE",
    ];
    const MOUNTS: [&str; 9] = [
        "/proc",
        "/dev",
        "/dev/pts",
        "/dev/mqueue",
        "/sys",
        "/sys/fs/cgroup",
        "/etc/hosts",
        "/etc/hostname",
        "/etc/resolv.conf",
    ];
    let namespaces = ["pid", "ipc", "uts", "mount", "network"]
        .map(|kind| json!({ "type": kind, "path": format!("/proc/4711/ns/{kind}") }));
    let mounts = MOUNTS.map(|path| {
        let options = ["nosuid", "noexec", "nodev", "ro"];
        json!({ "destination": path, "type": "bind", "source": path, "options": options })
    });
    let lines: Vec<String> = envs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    json!({
        "ociVersion": "1.2.0",
        "process": {
            "args": ["/usr/local/bin/server", "--config=/etc/server/config.yaml", "--v=2"],
            "env": lines,
            "cwd": "/",
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
            },
            "oomScoreAdj": 973,
        },
        "root": { "path": "rootfs" },
        "mounts": mounts,
        "linux": {
            "cgroupsPath": format!("{parent}/{id}"),
            "resources": { "cpu": { "shares": 512, "quota": 50_000, "period": 100_000 } },
            "namespaces": namespaces,
            "maskedPaths": ["/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys",
                "/proc/latency_stats", "/proc/timer_list", "/sys/firmware", "/proc/scsi"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}
