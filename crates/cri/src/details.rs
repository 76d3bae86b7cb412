use std::collections::BTreeMap;

use wharf_proto::cri::{
    ContainerStatus, ContainerStatusResponse, KeyValue, LinuxContainerResources, PodSandboxStatus,
    PodSandboxStatusResponse,
};

use crate::{env, info};

/// What a runtime tells of a pod sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodDetails {
    /// As the protocol has it, labels and annotations included.
    pub status: PodSandboxStatus,
    /// The cgroup that it was made in; `None` where the runtime does not tell.
    pub cgroup_parent: Option<String>,
}

/// What a runtime tells of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerDetails {
    /// As the protocol has it. Its resources are those that are in force, in a runtime's reading.
    pub status: ContainerStatus,
    /// How it was made; `None` where the runtime does not tell.
    pub config: Option<ContainerConfig>,
    /// The cgroup of the container itself, in the words of the runtime's cgroup driver: `/parent/id`, or
    /// `parent.slice:prefix:id` with systemd's.
    pub cgroups_path: Option<String>,
}

/// What a container was asked to be, as far as hooks are concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerConfig {
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its environment; `None` if it could not be made out how the runtime wrote the values.
    pub envs: Option<Vec<KeyValue>>,
    /// Its resources at that time.
    pub resources: Option<LinuxContainerResources>,
}

impl PodDetails {
    pub(crate) fn read(answer: PodSandboxStatusResponse) -> Option<PodDetails> {
        let status = answer.status?;
        let info: Option<info::Pod> = info::read(&answer.info, "pod", &status.id);
        let config = info.and_then(|info| info.config);
        let cgroup_parent =
            config.map(|config| config.linux.unwrap_or_default().cgroup_parent.unwrap_or_default());
        Some(PodDetails { status, cgroup_parent })
    }
}

impl ContainerDetails {
    pub(crate) fn read(answer: ContainerStatusResponse) -> Option<ContainerDetails> {
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
        Some(ContainerDetails { status, config, cgroups_path })
    }
}
