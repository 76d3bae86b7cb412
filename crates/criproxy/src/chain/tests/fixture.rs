//! A chain whose servers have their sockets in one folder.

use std::{
    collections::BTreeMap,
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use prometheus_client::{encoding::text::encode, registry::Registry};
use tempfile::TempDir;
use tokio::sync::watch;
use tonic::Status;
use wharf_proto::hooks::ContainerResourceHookRequest;

use super::subject::Container;
use crate::{
    HookMetrics, HookPoint,
    chain::{Asked, CallContext, Chain, ChainOptions, Conflict},
    config::{FailurePolicy, Server, Servers},
};

/// Only a failing test waits so long.
const DEADLINE: Duration = Duration::from_secs(20);
pub(super) const POINT: HookPoint = HookPoint::PreCreateContainer;

pub(super) struct Fixture {
    pub(super) chain: Arc<Chain>,
    pub(super) servers: watch::Sender<Arc<Servers>>,
    metrics: HookMetrics,
    folder: TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with(ChainOptions { budget: DEADLINE, ..ChainOptions::default() })
    }

    pub(super) fn resolving(conflict: Conflict) -> Self {
        Self::with(ChainOptions { budget: DEADLINE, conflict, ..ChainOptions::default() })
    }

    pub(super) fn with(options: ChainOptions) -> Self {
        let (servers, receiver) = watch::channel(Arc::default());
        let metrics = HookMetrics::default();
        let chain = Arc::new(Chain::new(receiver, options, metrics.clone()));
        Self { chain, servers, metrics, folder: tempfile::tempdir().unwrap() }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server that is asked at [`POINT`].
    pub(super) fn server(&self, name: &str, policy: FailurePolicy) -> Server {
        let hooks = BTreeMap::from([(POINT, policy)]);
        Server { hooks, ..Server::new(name, self.socket(name)) }
    }

    pub(super) fn serve(&self, servers: impl IntoIterator<Item = Server>) {
        let servers = servers.into_iter().map(Arc::new).collect();
        self.servers.send_replace(Arc::new(Servers::new(servers)));
    }

    pub(super) async fn ask(&self) -> Result<Asked<Container>, Status> {
        self.ask_with_parent("").await
    }

    /// About a container whose pod has this cgroup, by which servers can tell calls apart.
    pub(super) async fn ask_with_parent(&self, parent: &str) -> Result<Asked<Container>, Status> {
        let pod_cgroup_parent = parent.to_owned();
        let request = ContainerResourceHookRequest { pod_cgroup_parent, ..Default::default() };
        soon(self.chain.ask(POINT, &context(), request)).await
    }

    /// Looks for a line in what is exported.
    pub(super) fn counted(&self, line: &str) {
        let mut registry = Registry::default();
        self.metrics.register(&mut registry);
        registry.register_collector(Box::new(self.chain.states()));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

pub(super) fn context() -> CallContext {
    CallContext {
        pod: "default/web".to_owned(),
        container: Some("nginx".to_owned()),
        ..CallContext::default()
    }
}

pub(super) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("in time")
}
