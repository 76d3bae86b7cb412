use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use prometheus_client::{encoding::text::encode, registry::Registry};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use wharf_criproxy::{Proxy, ProxyOptions};
use wharf_testkit::runtime::Runtime;
use wharf_uds::{LinkState, ListenOptions, Listener, ServeError};

use crate::client::Client;

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const DRAIN: Duration = Duration::from_secs(30);

/// A folder with the sockets of a proxy and of its runtime. The proxy runs, the runtime may.
pub(crate) struct Fixture {
    pub(crate) link: watch::Receiver<LinkState>,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinSet<Result<(), ServeError>>,
    metrics: Registry,
    folder: TempDir,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::draining(DRAIN).await
    }

    pub(crate) async fn draining(drain: Duration) -> Self {
        Self::with(drain, |_| {}).await
    }

    /// With other options than the usual ones.
    pub(crate) async fn with(drain: Duration, change: impl FnOnce(&mut ProxyOptions)) -> Self {
        Self::within(tempfile::tempdir().unwrap(), drain, change).await
    }

    /// In a folder that may hold something already, such as files of hook servers in `hooks`.
    pub(crate) async fn within(
        folder: TempDir,
        drain: Duration,
        change: impl FnOnce(&mut ProxyOptions),
    ) -> Self {
        let mut options =
            ProxyOptions::new(runtime_socket(folder.path()), folder.path().join("hooks"));
        change(&mut options);
        let proxy = Proxy::start(options).await.unwrap();
        let mut metrics = Registry::default();
        proxy.register_metrics(&mut metrics);
        let path = folder.path().join("proxy.sock");
        let listener = Listener::bind(&path, &ListenOptions::default()).unwrap();
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let link = proxy.link();
        serving.spawn(proxy.serve(listener, drain, stop.clone()));
        Self { link, stop, serving, metrics, folder }
    }

    /// Stops the proxy in order, and gives its folder to another one.
    pub(crate) async fn stop(mut self) -> TempDir {
        self.stop.cancel();
        soon(self.serving.join_next()).await.unwrap().unwrap().unwrap();
        self.folder
    }

    /// With a runtime that is connected.
    pub(crate) async fn with_runtime() -> (Self, Runtime, Client) {
        let fixture = Self::new().await;
        let runtime = fixture.runtime().await;
        let client = fixture.client().await;
        (fixture, runtime, client)
    }

    /// A runtime, once the proxy has found it.
    pub(crate) async fn runtime(&self) -> Runtime {
        let runtime = Runtime::start(&runtime_socket(self.folder.path()));
        self.connected(true).await;
        runtime
    }

    pub(crate) async fn client(&self) -> Client {
        Client::dial(&self.socket()).await
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("proxy.sock")
    }

    pub(crate) fn runtime_socket(&self) -> PathBuf {
        runtime_socket(self.folder.path())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until this line is among the metrics.
    pub(crate) async fn counts(&self, line: &str) {
        let counted = async {
            while !self.metrics().lines().any(|found| found == line) {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(DEADLINE, counted).await.is_err() {
            panic!("no {line} in\n{}", self.metrics());
        }
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.metrics).unwrap();
        text
    }

    pub(crate) async fn connected(&self, wanted: bool) {
        let is = |state: &LinkState| matches!(state, LinkState::Connected { .. }) == wanted;
        soon(self.link.clone().wait_for(is)).await.unwrap();
    }
}

fn runtime_socket(folder: &Path) -> PathBuf {
    folder.join("runtime.sock")
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("within the deadline")
}
