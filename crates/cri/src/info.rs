//! The verbose part of a status in containerd's format: one JSON document under the key `info`.
//!
//! Its `config` is Go's JSON of the protocol's messages: names have underscores, and absent values
//! may be null. Its `runtimeSpec` is the OCI specification that the container was started with. All
//! other keys are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use wharf_proto::cri;

const DOCUMENT: &str = "info";

/// Parses the document in `info`. Its format is not part of the protocol and may change with any
/// version of a runtime, so an unexpected document is logged and ignored.
pub(crate) fn read<T: DeserializeOwned>(
    info: &BTreeMap<String, String>,
    kind: &str,
    id: &str,
) -> Option<T> {
    let document = info.get(DOCUMENT)?;
    match serde_json::from_str(document) {
        Ok(read) => Some(read),
        // The error's text may quote the document, which holds secrets: log only its position.
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            tracing::warn!(kind, id, line, column, "failed to parse verbose status");
            None
        }
    }
}

#[derive(Default, Deserialize)]
pub(crate) struct Pod {
    pub(crate) config: Option<PodConfig>,
}

#[derive(Deserialize)]
pub(crate) struct PodConfig {
    pub(crate) linux: Option<LinuxPod>,
}

#[derive(Default, Deserialize)]
pub(crate) struct LinuxPod {
    pub(crate) cgroup_parent: Option<String>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Container {
    pub(crate) config: Option<ContainerConfig>,
    #[serde(rename = "runtimeSpec")]
    pub(crate) runtime_spec: Option<Spec>,
}

#[derive(Deserialize)]
pub(crate) struct ContainerConfig {
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    pub(crate) envs: Option<Vec<Env>>,
    pub(crate) linux: Option<LinuxContainer>,
}

#[derive(Deserialize)]
pub(crate) struct Env {
    #[serde(default)]
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) value: String,
}

#[derive(Deserialize)]
pub(crate) struct LinuxContainer {
    pub(crate) resources: Option<Resources>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    cpu_period: i64,
    cpu_quota: i64,
    cpu_shares: i64,
    memory_limit_in_bytes: i64,
    oom_score_adj: i64,
    cpuset_cpus: String,
    cpuset_mems: String,
    hugepage_limits: Option<Vec<Hugepages>>,
    unified: Option<BTreeMap<String, String>>,
    memory_swap_limit_in_bytes: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Hugepages {
    page_size: String,
    limit: u64,
}

#[derive(Default, Deserialize)]
pub(crate) struct Spec {
    pub(crate) process: Option<Process>,
    pub(crate) linux: Option<LinuxSpec>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Process {
    pub(crate) env: Option<Vec<String>>,
}

#[derive(Deserialize)]
pub(crate) struct LinuxSpec {
    #[serde(rename = "cgroupsPath")]
    pub(crate) cgroups_path: Option<String>,
}

impl From<Resources> for cri::LinuxContainerResources {
    fn from(read: Resources) -> Self {
        let hugepages = read.hugepage_limits.unwrap_or_default().into_iter();
        Self {
            cpu_period: read.cpu_period,
            cpu_quota: read.cpu_quota,
            cpu_shares: read.cpu_shares,
            memory_limit_in_bytes: read.memory_limit_in_bytes,
            oom_score_adj: read.oom_score_adj,
            cpuset_cpus: read.cpuset_cpus,
            cpuset_mems: read.cpuset_mems,
            hugepage_limits: hugepages
                .map(|own| cri::HugepageLimit { page_size: own.page_size, limit: own.limit })
                .collect(),
            unified: read.unified.unwrap_or_default(),
            memory_swap_limit_in_bytes: read.memory_swap_limit_in_bytes,
        }
    }
}

#[cfg(test)]
mod tests;
