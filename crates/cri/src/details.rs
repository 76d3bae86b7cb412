use std::collections::BTreeMap;

use wharf_proto::cri::{
    ContainerStatus, ContainerStatusResponse, KeyValue, LinuxContainerResources, PodSandboxStatus,
    PodSandboxStatusResponse,
};

use crate::{env, info};

/// Status and configuration of a pod sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodDetails {
    /// The protocol's status, labels and annotations included.
    pub status: PodSandboxStatus,
    /// Parent cgroup of the sandbox; `None` if the runtime does not report it.
    pub cgroup_parent: Option<String>,
}

/// Status and configuration of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerDetails {
    /// The protocol's status. Its resources are those in force, as the runtime reads them.
    pub status: ContainerStatus,
    /// Configuration that the container was created with; `None` if the runtime does not report it.
    pub config: Option<ContainerConfig>,
    /// The container's own cgroup, in the format of the runtime's cgroup driver: `/parent/id` with
    /// cgroupfs, `parent.slice:prefix:id` with systemd.
    pub cgroups_path: Option<String>,
}

/// The parts of a container's configuration that hooks use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerConfig {
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Environment; `None` if the encoding of its values is ambiguous.
    pub envs: Option<Vec<KeyValue>>,
    /// Resources at creation.
    pub resources: Option<LinuxContainerResources>,
}

impl PodDetails {
    pub(crate) fn read(answer: PodSandboxStatusResponse) -> Option<Self> {
        let status = answer.status?;
        let info: Option<info::Pod> = info::read(&answer.info, "pod", &status.id);
        let config = info.and_then(|info| info.config);
        let cgroup_parent =
            config.map(|config| config.linux.unwrap_or_default().cgroup_parent.unwrap_or_default());
        Some(Self { status, cgroup_parent })
    }
}

impl ContainerDetails {
    pub(crate) fn read(answer: ContainerStatusResponse) -> Option<Self> {
        let status = answer.status?;
        let info: Option<info::Container> = info::read(&answer.info, "container", &status.id);
        let info = info.unwrap_or_default();
        let spec = info.runtime_spec.unwrap_or_default();
        let started = spec.process.unwrap_or_default().env.unwrap_or_default();
        let config = info.config.map(|config| ContainerConfig {
            annotations: config.annotations.unwrap_or_default(),
            envs: env::read(config.envs.unwrap_or_default(), &started),
            resources: config.linux.and_then(|linux| linux.resources).map(Into::into),
        });
        let cgroups_path = spec.linux.and_then(|linux| linux.cgroups_path);
        Some(Self { status, config, cgroups_path })
    }
}
