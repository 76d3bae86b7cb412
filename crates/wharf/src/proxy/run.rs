//! The proxy as a process: its socket, its HTTP endpoint, its end.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use prometheus_client::registry::Registry;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::info;
use wharf_cli::{Admin, CheckFailure, process_metrics};
use wharf_criproxy::{Control, Proxy, ProxyOptions};
use wharf_uds::{LinkState, ListenOptions, Listener};

/// How long calls in flight may take once the proxy is told to stop, unless a flag says otherwise.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// What to run.
pub(super) struct Plan {
    pub(super) listen: PathBuf,
    /// The socket for questions to the proxy.
    pub(super) control: PathBuf,
    pub(super) http: Option<String>,
    /// How long calls in flight may take once it is told to stop.
    pub(super) drain: Duration,
    pub(super) options: ProxyOptions,
}

impl Plan {
    pub(super) async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let Plan { listen, control, http, drain, options } = self;
        let (runtime, hooks) = (options.runtime.clone(), options.hooks.clone());
        ensure!(
            listen != runtime,
            "the socket to listen on and that of the runtime are the same socket: {}",
            listen.display()
        );
        let listener = bind(&listen)?;
        let proxy = Proxy::start(options).await?;
        let questions = bind(&control).context("--control")?;
        info!(
            listen = %listen.display(),
            runtime = %runtime.display(),
            hooks = %hooks.display(),
            "proxy started"
        );

        let mut serving = JoinSet::new();
        let control = proxy.control();
        if let Some(address) = http {
            let mut registry = Registry::default();
            process_metrics(&mut registry);
            proxy.register_metrics(&mut registry);
            let runtime = runtime.display().to_string();
            let admin = admin(runtime, proxy.link(), control.clone(), registry);
            let bound = admin.bind(&address).await.context("--http-endpoint")?;
            info!(address = %bound.local_addr(), "serving /healthz, /readyz and /metrics");
            serving.spawn(bound.serve(stop.clone()));
        }
        let mut answering = JoinSet::new();
        answering.spawn(control.serve(questions, stop.clone()));
        proxy.serve(listener, drain, stop).await?;
        serving.join_all().await;
        for answered in answering.join_all().await {
            answered.context("--control")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Binds a socket, whose folder is made if it is not there.
fn bind(socket: &Path) -> anyhow::Result<Listener> {
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("folder of the socket {}", socket.display()))?;
    }
    Ok(Listener::bind(socket, &ListenOptions::default())?)
}

fn admin(
    runtime: String,
    link: watch::Receiver<LinkState>,
    control: Control,
    registry: Registry,
) -> Admin {
    Admin::new()
        .metrics("/metrics", Arc::new(registry))
        .check("/healthz", || async { Ok(()) })
        .check("/readyz", move || {
            let disconnected = match &*link.borrow() {
                LinkState::Connected { .. } => None,
                LinkState::Down { error } => Some(error.clone()),
                LinkState::Idle | LinkState::Connecting => Some(format!("connecting to {runtime}")),
            };
            let problems: Vec<_> = disconnected.into_iter().chain(control.problems()).collect();
            async move {
                if problems.is_empty() {
                    return Ok(());
                }
                Err(CheckFailure::new(503, problems.join("\n")))
            }
        })
}
