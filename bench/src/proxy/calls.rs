//! Calls like those of a kubelet, in names, number and size of their fields.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use wharf_proto::{cri, hooks};

pub(super) const VERSION: &str = "/runtime.v1.RuntimeService/Version";
pub(super) const LIST_CONTAINERS: &str = "/runtime.v1.RuntimeService/ListContainers";
pub(super) const RUN_POD: &str = "/runtime.v1.RuntimeService/RunPodSandbox";
pub(super) const CREATE_CONTAINER: &str = "/runtime.v1.RuntimeService/CreateContainer";
pub(super) const UPDATE_CONTAINER: &str = "/runtime.v1.RuntimeService/UpdateContainerResources";
pub(super) const LIST_IMAGES: &str = "/runtime.v1.ImageService/ListImages";
pub(super) const CREATE_HOOK: &str = "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook";

const ENVS: usize = 20;
const ANNOTATIONS: usize = 15;

/// A message in its gRPC frame, the form in which the bench keeps all messages.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let size = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + size);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(size).expect("no message here takes gigabytes"));
    message.encode(&mut frame).expect("there is room for all of it");
    frame.freeze()
}

pub(super) fn version() -> cri::VersionRequest {
    cri::VersionRequest { version: "v1".to_owned() }
}

pub(super) fn run_pod(number: usize) -> cri::RunPodSandboxRequest {
    cri::RunPodSandboxRequest { config: Some(pod(number)), ..Default::default() }
}

/// A request for container `member` of pod `number`, with the runtime's ID `pod_id`.
pub(super) fn create_container(
    number: usize,
    member: usize,
    pod_id: &str,
) -> cri::CreateContainerRequest {
    let name = format!("container-{member}");
    let mount = |path: &str| cri::Mount {
        container_path: path.to_owned(),
        host_path: format!("/var/lib/kubelet/pods/{}/volumes{path}", uid(number)),
        readonly: true,
        ..Default::default()
    };
    let config = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: name.clone(), attempt: 0 }),
        image: Some(cri::ImageSpec {
            image: format!("sha256:{}", "5d".repeat(32)),
            ..Default::default()
        }),
        command: vec!["/usr/local/bin/server".to_owned()],
        args: vec!["--config=/etc/server/config.yaml".to_owned(), "--v=2".to_owned()],
        envs: envs(),
        mounts: ["/etc/hosts", "/dev/termination-log", "/etc/server", "/var/run/secrets/token"]
            .map(mount)
            .into(),
        labels: labels(number, &name),
        annotations: annotations("container.wharf.dev", ANNOTATIONS),
        log_path: format!("{name}/0.log"),
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(resources()),
            ..Default::default()
        }),
        ..Default::default()
    };
    cri::CreateContainerRequest {
        pod_sandbox_id: pod_id.to_owned(),
        config: Some(config),
        sandbox_config: Some(pod(number)),
    }
}

/// An update that differs from others.
pub(super) fn update_container(id: &str, number: i64) -> cri::UpdateContainerResourcesRequest {
    let linux = cri::LinuxContainerResources { cpu_shares: number, ..resources() };
    cri::UpdateContainerResourcesRequest {
        container_id: id.to_owned(),
        linux: Some(linux),
        ..Default::default()
    }
}

/// The request to a hook server before the first container of the first pod is made.
pub(super) fn question() -> hooks::ContainerResourceHookRequest {
    let asked = create_container(0, 0, "");
    let (config, pod) =
        (asked.config.unwrap_or_default(), asked.sandbox_config.unwrap_or_default());
    let text = |env: cri::KeyValue| (env.key, String::from_utf8_lossy(&env.value).into_owned());
    hooks::ContainerResourceHookRequest {
        pod_meta: pod.metadata.map(|own| hooks::PodSandboxMetadata {
            name: own.name,
            uid: own.uid,
            namespace: own.namespace,
            attempt: own.attempt,
        }),
        container_meta: Some(hooks::ContainerMetadata {
            name: "container-0".to_owned(),
            ..Default::default()
        }),
        container_annotations: config.annotations,
        container_resources: Some(hooks::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 50_000,
            cpu_shares: 512,
            memory_limit_in_bytes: 256 << 20,
            oom_score_adj: 973,
            ..Default::default()
        }),
        pod_annotations: pod.annotations,
        pod_labels: pod.labels,
        pod_cgroup_parent: pod.linux.unwrap_or_default().cgroup_parent,
        container_envs: config.envs.into_iter().map(text).collect(),
        ..Default::default()
    }
}

fn pod(number: usize) -> cri::PodSandboxConfig {
    let name = pod_name(number);
    let metadata = cri::PodSandboxMetadata {
        name: name.clone(),
        uid: uid(number),
        namespace: "production".to_owned(),
        attempt: 0,
    };
    cri::PodSandboxConfig {
        metadata: Some(metadata),
        hostname: name,
        log_directory: format!("/var/log/pods/production_{}_{}", pod_name(number), uid(number)),
        labels: labels(number, "POD"),
        annotations: annotations("pod.wharf.dev", 5),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: format!("/kubepods/burstable/pod{}", uid(number)),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn pod_name(number: usize) -> String {
    format!("server-7c9f8d6b5d-{number:05}")
}

fn uid(number: usize) -> String {
    format!("4f6c2a1e-8b0d-4c53-9e27-{number:012x}")
}

fn resources() -> cri::LinuxContainerResources {
    cri::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 512,
        memory_limit_in_bytes: 256 << 20,
        oom_score_adj: 973,
        ..Default::default()
    }
}

/// Environment variables of a namespace's services.
fn envs() -> Vec<cri::KeyValue> {
    let env = |number| cri::KeyValue {
        key: format!("BACKEND_SERVICE_{number:02}_PORT_8443_TCP"),
        value: format!("tcp://10.96.{number}.17:8443").into_bytes(),
    };
    (0..ENVS).map(env).collect()
}

fn annotations(domain: &str, count: usize) -> BTreeMap<String, String> {
    let pair = |number| {
        (format!("{domain}/annotation-{number:02}"), format!("value {number:02} of some length"))
    };
    (0..count).map(pair).collect()
}

fn labels(number: usize, container: &str) -> BTreeMap<String, String> {
    [
        ("io.kubernetes.container.name", container.to_owned()),
        ("io.kubernetes.pod.name", pod_name(number)),
        ("io.kubernetes.pod.namespace", "production".to_owned()),
        ("io.kubernetes.pod.uid", uid(number)),
        ("app.kubernetes.io/name", "server".to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}
