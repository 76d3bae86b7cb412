//! `wharf proxy`: between kubelet and container runtime.

mod endpoint;

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use clap::Args;
use prometheus_client::registry::Registry;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::info;
use wharf_cli::{Admin, CheckFailure, process_metrics};
use wharf_uds::{LinkState, ListenOptions, Listener};

use self::endpoint::Endpoint;
use crate::running::{self, LogArgs, Threads};

/// How long calls in flight may take once the proxy is told to stop. The kubelet's event stream has no end by itself and
/// takes all of it.
const DRAIN: Duration = Duration::from_secs(10);

/// Stands between kubelet and container runtime, and carries every call as it comes
///
/// Point the kubelet's --container-runtime-endpoint (or crictl's --runtime-endpoint) at the socket given by --listen.
/// Every call, of whatever CRI version, is passed on to the runtime byte for byte, and so is its answer. While the
/// runtime is down calls are answered UNAVAILABLE; once it is back they pass again. To back out, point the kubelet at the
/// runtime's own socket: nothing is kept here.
#[derive(Args)]
pub(crate) struct Proxy {
    /// Socket to serve the runtime interface on, such as /run/wharf/cri.sock; its folder is made if it is not there
    #[arg(long, value_name = "SOCKET")]
    listen: Endpoint,
    /// Socket of the container runtime, such as /run/containerd/containerd.sock; it may appear later
    #[arg(long, value_name = "SOCKET")]
    runtime: Endpoint,
    /// Serve /healthz, /readyz and /metrics at this address, such as 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    http_endpoint: Option<String>,
    #[command(flatten)]
    log: LogArgs,
}

impl Proxy {
    pub(crate) fn run(self) -> ExitCode {
        let guard = self.log.init();
        let code = running::run(Threads::One, |stop| self.serve(stop));
        drop(guard);
        code
    }

    async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let (listen, runtime) = (self.listen.path(), self.runtime.path());
        ensure!(listen != runtime, "--listen and --runtime name the same socket");
        if let Some(folder) = listen.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("--listen {}", listen.display()))?;
        }
        let listener = Listener::bind(listen, &ListenOptions::default()).context("--listen")?;
        let proxy = wharf_criproxy::Proxy::new(runtime);
        info!(listen = %listen.display(), runtime = %runtime.display(), "proxy started");

        let mut serving = JoinSet::new();
        if let Some(address) = &self.http_endpoint {
            let mut registry = Registry::default();
            process_metrics(&mut registry);
            proxy.register_metrics(&mut registry);
            let admin = admin(runtime, proxy.link(), registry);
            let bound = admin.bind(address).await.context("--http-endpoint")?;
            info!(address = %bound.local_addr(), "serving /healthz, /readyz and /metrics");
            serving.spawn(bound.serve(stop.clone()));
        }
        proxy.serve(listener, DRAIN, stop).await?;
        serving.join_all().await;
        Ok(ExitCode::SUCCESS)
    }
}

fn admin(runtime: &Path, link: watch::Receiver<LinkState>, registry: Registry) -> Admin {
    let runtime = runtime.display().to_string();
    Admin::new()
        .metrics("/metrics", Arc::new(registry))
        .check("/healthz", || async { Ok(()) })
        .check("/readyz", move || {
            let ready = match &*link.borrow() {
                LinkState::Connected { .. } => Ok(()),
                LinkState::Down { error } => Err(error.clone()),
                LinkState::Idle | LinkState::Connecting => Err(format!("connecting to {runtime}")),
            };
            async move { ready.map_err(|text| CheckFailure::new(503, text)) }
        })
}
