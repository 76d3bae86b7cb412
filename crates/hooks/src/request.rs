//! What a hook is told.

use std::{collections::BTreeMap, fmt};

use wharf_proto::hooks;

use crate::{Env, QosClass};

/// A pod, as far as kubelet tells the runtime and hooks before this one left it.
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
    /// The cgroup that its containers' cgroups are made in.
    pub cgroup_parent: String,
}

impl Pod {
    /// Its QoS class, as its cgroup's path has it; none where that path is not kubelet's.
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
    /// Which of the runtime's handlers runs it; empty for its default.
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
    /// The runtime's id of it, once it is made.
    pub id: Option<String>,
    /// How often it was made before.
    pub attempt: u32,
    /// Its own annotations, beside the pod's.
    pub annotations: BTreeMap<String, String>,
    /// Its environment.
    pub env: Env,
    /// Its resources.
    pub resources: Resources,
    /// What else the runtime is asked for: before a container is made, for servers that
    /// [asked for it](crate::HookServerBuilder::details).
    pub details: Option<Details>,
}

/// What else of a container the runtime is asked for.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    /// Its image.
    pub image: String,
    /// The program, in place of the image's entry point; empty for that.
    pub command: Vec<String>,
    /// The program's arguments.
    pub args: Vec<String>,
    /// The container's own labels, beside the pod's.
    pub labels: BTreeMap<String, String>,
    /// Its mounts.
    pub mounts: Vec<Mount>,
}

/// A mount of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mount {
    /// The place in the container.
    pub container_path: String,
    /// The path on the node; empty for an image.
    pub host_path: String,
    /// Whether the container cannot write to it.
    pub readonly: bool,
    /// The image that is mounted as a volume; empty for a path of the node.
    pub image: String,
}

impl fmt::Debug for Details {
    /// Arguments may be secrets: their number is told.
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
    /// The QoS class of its pod: as the path of the pod's cgroup has it or, where a hook moved the pod elsewhere, as the
    /// container's OOM score does. That one tells Burstable and BestEffort only.
    #[must_use]
    pub fn qos(&self) -> Option<QosClass> {
        self.pod.qos().or_else(|| QosClass::of_oom_score(self.resources.oom_score_adj))
    }
}

/// What a container may use. Zero and empty mean that nothing was said: the protocol cannot tell them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// The length of a CFS period, in microseconds.
    pub cpu_period: i64,
    /// CPU time per period, in microseconds; -1 is without limit.
    pub cpu_quota: i64,
    /// The relative weight.
    pub cpu_shares: i64,
    /// Bytes of memory.
    pub memory_limit: i64,
    /// Bytes of memory and swap together.
    pub memory_swap_limit: i64,
    /// From -1000, never killed when memory runs out, to 1000, killed first.
    pub oom_score_adj: i64,
    /// CPUs, as a list such as `0-3,7`.
    pub cpuset_cpus: String,
    /// Memory nodes, as a list.
    pub cpuset_mems: String,
    /// Bytes in huge pages, by page size.
    pub hugepage_limits: BTreeMap<String, u64>,
    /// Files of cgroup v2, by name.
    pub unified: BTreeMap<String, String>,
}

impl From<hooks::PodSandboxHookRequest> for PodSandbox {
    fn from(wire: hooks::PodSandboxHookRequest) -> PodSandbox {
        let pod = pod(wire.pod_meta, wire.labels, wire.annotations, wire.cgroup_parent);
        PodSandbox { pod, runtime_handler: wire.runtime_handler }
    }
}

impl From<hooks::ContainerResourceHookRequest> for Container {
    fn from(wire: hooks::ContainerResourceHookRequest) -> Container {
        let meta = wire.container_meta.unwrap_or_default();
        Container {
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
    fn from(wire: hooks::LinuxContainerResources) -> Resources {
        let pages = wire.hugepage_limits.into_iter();
        Resources {
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
