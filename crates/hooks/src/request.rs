//! The arguments of hooks.

use std::{collections::BTreeMap, fmt};

use wharf_proto::hooks;

use crate::{Env, QosClass};

/// A pod, with the fields that the kubelet sends to the runtime, changed by the hooks called before
/// this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The cgroup of the pod, in which its containers' cgroups are made.
    pub cgroup_parent: String,
}

impl Pod {
    /// Its QoS class, from its cgroup's path; `None` if the kubelet did not choose that path.
    #[must_use]
    pub fn qos(&self) -> Option<QosClass> {
        QosClass::of_cgroup(&self.cgroup_parent)
    }
}

/// The sandbox of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodSandbox {
    /// The pod.
    pub pod: Pod,
    /// Name of the runtime handler; empty for the runtime's default.
    pub runtime_handler: String,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container {
    /// Its pod.
    pub pod: Pod,
    /// Its name in the pod.
    pub name: String,
    /// The runtime's ID; `None` before the container is made.
    pub id: Option<String>,
    /// How often a container of this name was made before.
    pub attempt: u32,
    /// Its own annotations, without the pod's.
    pub annotations: BTreeMap<String, String>,
    /// Its environment.
    pub env: Env,
    /// Its resources.
    pub resources: Resources,
    /// Further fields of the request: before a container is made, for servers that [asked for
    /// them](crate::HookServerBuilder::details).
    pub details: Option<Details>,
}

/// Further fields of the request to make a container.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    /// Its image.
    pub image: String,
    /// The program; empty for the image's entry point.
    pub command: Vec<String>,
    /// The program's arguments.
    pub args: Vec<String>,
    /// The container's own labels, without the pod's.
    pub labels: BTreeMap<String, String>,
    /// Its mounts.
    pub mounts: Vec<Mount>,
}

/// A mount of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mount {
    /// The path in the container.
    pub container_path: String,
    /// The path on the node; empty for an image.
    pub host_path: String,
    /// Whether the container cannot write to it.
    pub readonly: bool,
    /// The image that is mounted as a volume; empty for a path on the node.
    pub image: String,
}

impl fmt::Debug for Details {
    /// Arguments may be secrets, so only their number is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Details")
            .field("image", &self.image)
            .field("command", &self.command.len())
            .field("args", &self.args.len())
            .field("labels", &self.labels)
            .field("mounts", &self.mounts)
            .finish()
    }
}

impl From<hooks::ContainerDetails> for Details {
    fn from(wire: hooks::ContainerDetails) -> Self {
        let mount = |mount: hooks::ContainerMount| Mount {
            container_path: mount.container_path,
            host_path: mount.host_path,
            readonly: mount.readonly,
            image: mount.image,
        };
        Self {
            image: wire.image,
            command: wire.command,
            args: wire.args,
            labels: wire.labels,
            mounts: wire.mounts.into_iter().map(mount).collect(),
        }
    }
}

impl Container {
    /// The QoS class of its pod: from the path of the pod's cgroup or, if a hook moved the pod
    /// elsewhere, from the container's OOM score. The score distinguishes Burstable and BestEffort
    /// only.
    #[must_use]
    pub fn qos(&self) -> Option<QosClass> {
        self.pod.qos().or_else(|| QosClass::of_oom_score(self.resources.oom_score_adj))
    }
}

/// Resources of a container. Zero and empty mean that the field was not set: the protocol cannot
/// express the difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// The length of a CFS period, in microseconds.
    pub cpu_period: i64,
    /// CPU time per period, in microseconds; -1 for no limit.
    pub cpu_quota: i64,
    /// The relative weight of the container's CPU time.
    pub cpu_shares: i64,
    /// The limit of memory, in bytes.
    pub memory_limit: i64,
    /// The limit of memory and swap together, in bytes.
    pub memory_swap_limit: i64,
    /// From -1000, never killed when memory runs out, to 1000, killed first.
    pub oom_score_adj: i64,
    /// CPUs, as a list such as `0-3,7`.
    pub cpuset_cpus: String,
    /// Memory nodes, as a list.
    pub cpuset_mems: String,
    /// The limits of huge pages in bytes, by page size.
    pub hugepage_limits: BTreeMap<String, u64>,
    /// Files of cgroup v2, by name.
    pub unified: BTreeMap<String, String>,
}

impl From<hooks::PodSandboxHookRequest> for PodSandbox {
    fn from(wire: hooks::PodSandboxHookRequest) -> Self {
        let pod = pod(wire.pod_meta, wire.labels, wire.annotations, wire.cgroup_parent);
        Self { pod, runtime_handler: wire.runtime_handler }
    }
}

impl From<hooks::ContainerResourceHookRequest> for Container {
    fn from(wire: hooks::ContainerResourceHookRequest) -> Self {
        let meta = wire.container_meta.unwrap_or_default();
        Self {
            pod: pod(wire.pod_meta, wire.pod_labels, wire.pod_annotations, wire.pod_cgroup_parent),
            name: meta.name,
            id: Some(meta.id).filter(|id| !id.is_empty()),
            attempt: meta.attempt,
            annotations: wire.container_annotations,
            env: wire.container_envs.into(),
            resources: wire.container_resources.map(Resources::from).unwrap_or_default(),
            details: wire.details.map(Details::from),
        }
    }
}

impl From<hooks::LinuxContainerResources> for Resources {
    fn from(wire: hooks::LinuxContainerResources) -> Self {
        let pages = wire.hugepage_limits.into_iter();
        Self {
            cpu_period: wire.cpu_period,
            cpu_quota: wire.cpu_quota,
            cpu_shares: wire.cpu_shares,
            memory_limit: wire.memory_limit_in_bytes,
            memory_swap_limit: wire.memory_swap_limit_in_bytes,
            oom_score_adj: wire.oom_score_adj,
            cpuset_cpus: wire.cpuset_cpus,
            cpuset_mems: wire.cpuset_mems,
            hugepage_limits: pages.map(|page| (page.page_size, page.limit)).collect(),
            unified: wire.unified,
        }
    }
}

fn pod(
    meta: Option<hooks::PodSandboxMetadata>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    cgroup_parent: String,
) -> Pod {
    let hooks::PodSandboxMetadata { name, uid, namespace, .. } = meta.unwrap_or_default();
    Pod { namespace, name, uid, labels, annotations, cgroup_parent }
}
