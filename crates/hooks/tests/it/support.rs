//! A hook server in a temporary folder, and the proxy's side of the protocol.

use std::{path::PathBuf, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use wharf_hooks::{HookServer, ServerError};
use wharf_proto::hooks::{
    ContainerMetadata, ContainerResourceHookRequest, HugepageLimit, LinuxContainerResources,
    PodSandboxHookRequest, PodSandboxMetadata,
    runtime_hook_service_client::RuntimeHookServiceClient,
};
use wharf_uds::{Channel, ChannelOptions};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A running server.
pub(crate) struct Running {
    pub(crate) folder: TempDir,
    pub(crate) stop: CancellationToken,
    tasks: JoinSet<Result<(), ServerError>>,
}

impl Running {
    /// Starts `server` and waits for its file.
    pub(crate) async fn start(server: &HookServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (socket, config) = (folder.path().join("run/h.sock"), folder.path().join("hooks.d"));
        let (server, until) = (server.clone(), stop.clone());
        tasks.spawn(async move { server.serve(&socket, &config, until).await });
        let running = Self { folder, stop, tasks };
        running.until(|| running.file("test").exists()).await;
        running
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("run/h.sock")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("hooks.d/{name}.json"))
    }

    pub(crate) fn config(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.file("test")).unwrap()).unwrap()
    }

    /// A client like a proxy's: at the endpoint in the file.
    pub(crate) fn proxy(&self) -> RuntimeHookServiceClient<Channel> {
        let config = self.config();
        let endpoint = config["remote-endpoint"].as_str().unwrap();
        assert_eq!(endpoint, self.socket().to_str().unwrap());
        let channel = Channel::new(endpoint, ChannelOptions::default());
        RuntimeHookServiceClient::new(channel)
    }

    /// Waits until `condition` holds, by polling: a file sends no event. The deadline bounds it.
    pub(crate) async fn until(&self, mut condition: impl FnMut() -> bool) {
        let looking = async {
            let mut tick = tokio::time::interval(Duration::from_millis(5));
            while !condition() {
                tick.tick().await;
            }
        };
        timeout(PATIENCE, looking).await.unwrap();
    }

    /// Stops it and waits until it has ended.
    pub(crate) async fn stop(mut self) -> TempDir {
        self.stop.cancel();
        let ended = timeout(PATIENCE, self.tasks.join_next()).await.unwrap().unwrap();
        ended.unwrap().unwrap();
        self.folder
    }
}

/// A container with a value in every field.
pub(crate) fn container() -> ContainerResourceHookRequest {
    ContainerResourceHookRequest {
        pod_meta: Some(pod_meta()),
        container_meta: Some(ContainerMetadata { name: "c".into(), attempt: 2, id: "id-1".into() }),
        container_annotations: map(&[("own", "1")]),
        container_resources: Some(LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 50_000,
            cpu_shares: 512,
            memory_limit_in_bytes: 1 << 30,
            oom_score_adj: -997,
            cpuset_cpus: "0-3".into(),
            cpuset_mems: "0".into(),
            hugepage_limits: vec![HugepageLimit { page_size: "2MB".into(), limit: 4096 }],
            unified: map(&[("memory.high", "7")]),
            memory_swap_limit_in_bytes: 1 << 31,
        }),
        details: None,
        pod_resources: None,
        pod_annotations: map(&[("a", "1")]),
        pod_labels: map(&[("app", "db")]),
        pod_cgroup_parent: "/kubepods/burstable/podu".into(),
        container_envs: map(&[("PATH", "/bin"), ("TOKEN", "hunter2")]),
    }
}

pub(crate) fn sandbox() -> PodSandboxHookRequest {
    PodSandboxHookRequest {
        pod_meta: Some(pod_meta()),
        runtime_handler: "runc".into(),
        labels: map(&[("app", "db")]),
        annotations: map(&[("a", "1")]),
        cgroup_parent: "/kubepods/burstable/podu".into(),
        overhead: None,
        resources: None,
    }
}

pub(crate) fn map(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn pod_meta() -> PodSandboxMetadata {
    PodSandboxMetadata { name: "p".into(), uid: "u".into(), namespace: "n".into(), attempt: 0 }
}
