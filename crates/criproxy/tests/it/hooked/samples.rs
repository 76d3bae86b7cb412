//! Requests such as kubelets send, and what a runtime tells of them.

use std::collections::BTreeMap;

use prost::Message;
use wharf_proto::{cri, hooks::LinuxContainerResources};

pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub(crate) fn pod_config() -> cri::PodSandboxConfig {
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: "web-0".into(),
            uid: "uid-1".into(),
            namespace: "shop".into(),
            attempt: 3,
        }),
        labels: map(&[("app", "web")]),
        annotations: map(&[("owner", "shop")]),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: "/kubepods/burstable/pod1".into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(crate) fn run() -> cri::RunPodSandboxRequest {
    cri::RunPodSandboxRequest { config: Some(pod_config()), runtime_handler: "runc".into() }
}

pub(crate) fn env(key: &str, value: impl Into<Vec<u8>>) -> cri::KeyValue {
    cri::KeyValue { key: key.to_owned(), value: value.into() }
}

pub(crate) fn create(pod: &str) -> cri::CreateContainerRequest {
    cri::CreateContainerRequest {
        pod_sandbox_id: pod.to_owned(),
        config: Some(cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "nginx".into(), attempt: 1 }),
            envs: vec![env("B", "1"), env("A", "2")],
            annotations: map(&[("note", "kept")]),
            linux: Some(cri::LinuxContainerConfig {
                resources: Some(resources()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        sandbox_config: Some(pod_config()),
    }
}

pub(crate) fn resources() -> cri::LinuxContainerResources {
    cri::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 512,
        memory_limit_in_bytes: 64 << 20,
        oom_score_adj: 998,
        cpuset_cpus: "0-3".into(),
        hugepage_limits: vec![cri::HugepageLimit { page_size: "2MB".into(), limit: 4 << 20 }],
        ..Default::default()
    }
}

/// An update of nothing but a file of cgroup v2.
pub(crate) fn update(container: &str, file: &str) -> cri::UpdateContainerResourcesRequest {
    let unified = map(&[(file, "1")]);
    let linux = cri::LinuxContainerResources { unified, ..Default::default() };
    cri::UpdateContainerResourcesRequest {
        container_id: container.to_owned(),
        linux: Some(linux),
        ..Default::default()
    }
}

/// The same resources as hooks know them.
pub(crate) fn as_hooks_see(resources: &cri::LinuxContainerResources) -> LinuxContainerResources {
    LinuxContainerResources::decode(&*resources.encode_to_vec()).unwrap()
}
