//! What a runtime tells of the pods and containers that were there before the proxy.

use prost::Message;
use serde_json::json;
use tonic::Code;
use wharf_proto::cri;
use wharf_testkit::runtime::{Reply, Runtime, message};

use super::{
    node::failing,
    samples::{map, pod_config, resources},
};

pub(crate) const POD: &str = "9a1fe2b07c31-pod";
pub(crate) const CONTAINER: &str = "c0ffee5c41e2-container";
/// What a hook made of the pod's cgroup parent when it was run.
pub(crate) const HOOKED_PARENT: &str = "/hooked/pod1";

/// At most one pod with at most one container. All that can be known of them is told, as containerd
/// does.
#[derive(Clone)]
pub(crate) struct Past {
    pub(crate) pod: Option<cri::PodSandbox>,
    pub(crate) container: Option<cri::Container>,
    /// The only service that the runtime knows, if there is only one.
    pub(crate) service: Option<&'static str>,
    /// The value of the container's variable A.
    pub(crate) value: &'static str,
}

impl Past {
    pub(crate) fn empty() -> Self {
        Self { pod: None, container: None, service: None, value: "2" }
    }

    /// A pod, and a container that runs in it.
    pub(crate) fn one() -> Self {
        let config = pod_config();
        let pod = cri::PodSandbox {
            id: POD.to_owned(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
            runtime_handler: "runc".to_owned(),
            ..Default::default()
        };
        let container = cri::Container {
            id: CONTAINER.to_owned(),
            pod_sandbox_id: POD.to_owned(),
            metadata: Some(cri::ContainerMetadata { name: "nginx".into(), attempt: 1 }),
            annotations: map(&[("note", "kept")]),
            state: cri::ContainerState::ContainerRunning.into(),
            ..Default::default()
        };
        Self { pod: Some(pod), container: Some(container), ..Self::empty() }
    }

    pub(crate) fn of(self, runtime: &Runtime) {
        runtime.tell(move |method| self.reply(method));
    }

    fn reply(&self, method: &str) -> Reply {
        if self.service.is_some_and(|service| !method.starts_with(service)) {
            return failing(Code::Unimplemented, "unknown service");
        }
        let Some(answer) = self.answer(method.rsplit('/').next().unwrap_or_default()) else {
            return failing(Code::NotFound, "no such thing");
        };
        Reply::of(vec![message(&answer)])
    }

    fn answer(&self, method: &str) -> Option<Vec<u8>> {
        let (pods, containers) = (self.pod.iter().cloned(), self.container.iter().cloned());
        Some(match method {
            "ListPodSandbox" => {
                cri::ListPodSandboxResponse { items: pods.collect() }.encode_to_vec()
            }
            "ListContainers" => {
                cri::ListContainersResponse { containers: containers.collect() }.encode_to_vec()
            }
            "PodSandboxStatus" => {
                let pod = self.pod.clone()?;
                let status = cri::PodSandboxStatus {
                    id: pod.id,
                    metadata: pod.metadata,
                    state: pod.state,
                    labels: pod.labels,
                    annotations: pod.annotations,
                    runtime_handler: pod.runtime_handler,
                    ..Default::default()
                };
                let info = json!({"config": {"linux": {"cgroup_parent": HOOKED_PARENT}}});
                let info = map(&[("info", &info.to_string())]);
                let status = Some(status);
                cri::PodSandboxStatusResponse { status, info, ..Default::default() }.encode_to_vec()
            }
            "ContainerStatus" => {
                let container = self.container.clone()?;
                let status = cri::ContainerStatus { id: container.id, ..Default::default() };
                let info = map(&[("info", &self.container_info())]);
                cri::ContainerStatusResponse { status: Some(status), info }.encode_to_vec()
            }
            _ => return None,
        })
    }

    fn container_info(&self) -> String {
        let own = resources();
        let info = json!({
            "config": {
                "envs": [{"key": "B", "value": "1"}, {"key": "A", "value": self.value}],
                "linux": {"resources": {
                    "cpu_period": own.cpu_period,
                    "cpu_quota": own.cpu_quota,
                    "cpu_shares": own.cpu_shares,
                    "memory_limit_in_bytes": own.memory_limit_in_bytes,
                    "oom_score_adj": own.oom_score_adj,
                    "cpuset_cpus": own.cpuset_cpus,
                    "hugepage_limits": [{"page_size": "2MB", "limit": 4 << 20}],
                }},
            },
            "runtimeSpec": {
                "process": {"env": ["B=1", format!("A={}", self.value)]},
                "linux": {"cgroupsPath": format!("{HOOKED_PARENT}/{CONTAINER}")},
            },
        });
        info.to_string()
    }
}
