//! The proxy as a process: its socket, its HTTP endpoint, its end.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use prometheus_client::registry::Registry;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::info;
use wharf_cli::{Admin, CheckFailure, process_metrics};
use wharf_criproxy::{Proxy, ProxyOptions};
use wharf_uds::{LinkState, ListenOptions, Listener};

/// How long calls in flight may take once the proxy is told to stop, unless a flag says otherwise.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// What to run.
pub(super) struct Plan {
    pub(super) listen: PathBuf,
    pub(super) http: Option<String>,
    /// How long calls in flight may take once it is told to stop.
    pub(super) drain: Duration,
    pub(super) options: ProxyOptions,
}

impl Plan {
    pub(super) async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let Plan { listen, http, drain, options } = self;
        let (runtime, hooks) = (options.runtime.clone(), options.hooks.clone());
        ensure!(
            listen != runtime,
            "the socket to listen on and that of the runtime are the same socket: {}",
            listen.display()
        );
        if let Some(folder) = listen.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("folder of the socket {}", listen.display()))?;
        }
        let listener = Listener::bind(&listen, &ListenOptions::default())?;
        let proxy = Proxy::start(options).await?;
        info!(
            listen = %listen.display(),
            runtime = %runtime.display(),
            hooks = %hooks.display(),
            "proxy started"
        );

        let mut serving = JoinSet::new();
        if let Some(address) = http {
            let mut registry = Registry::default();
            process_metrics(&mut registry);
            proxy.register_metrics(&mut registry);
            let admin = admin(runtime.display().to_string(), proxy.link(), registry);
            let bound = admin.bind(&address).await.context("--http-endpoint")?;
            info!(address = %bound.local_addr(), "serving /healthz, /readyz and /metrics");
            serving.spawn(bound.serve(stop.clone()));
        }
        proxy.serve(listener, drain, stop).await?;
        serving.join_all().await;
        Ok(ExitCode::SUCCESS)
    }
}

fn admin(runtime: String, link: watch::Receiver<LinkState>, registry: Registry) -> Admin {
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
