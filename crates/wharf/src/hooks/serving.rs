//! What all hook servers of this binary have in common.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use clap::{Args, ValueEnum};
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;
use wharf_cli::{Admin, process_metrics};
use wharf_facts::hook;
use wharf_hooks::{FailurePolicy, HookMetrics, HookServer, HookServerBuilder};

use crate::running::{LogArgs, duration};

/// Flags of a hook server: its socket, and what it tells the proxy.
#[derive(Args)]
pub(super) struct Serving {
    /// Folder of the proxy, for the file that tells of this server; made if it is not there
    #[arg(long, value_name = "DIR", default_value = hook::FOLDER)]
    config_dir: PathBuf,
    /// Place among other servers: lower ones are asked first, equal ones by name
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    order: Option<i32>,
    /// What the proxy does when this server cannot be asked before a call, or refuses
    #[arg(long, value_name = "POLICY", default_value = "Ignore")]
    failure_policy: Policy,
    /// How long the proxy waits for this server, within its own limit for all
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Leave the file in --config-dir when this server stops; with --failure-policy=Fail nothing starts then without it
    #[arg(long)]
    keep_config: bool,
    /// Serve /healthz and /metrics at this address, such as 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    http_endpoint: Option<String>,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// As a server's file has it.
#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// The kubelet's call fails, and it tries again
    #[value(name = "Fail")]
    Fail,
    /// The call goes on without this server
    #[value(name = "Ignore")]
    Ignore,
}

impl Serving {
    /// A server with these flags, which has no hooks yet. Its metrics are in the registry.
    pub(super) fn builder(&self, name: &str) -> (HookServerBuilder, Registry) {
        let mut registry = Registry::default();
        process_metrics(&mut registry);
        let mut builder = HookServer::builder(name)
            .failure_policy(match self.failure_policy {
                Policy::Fail => FailurePolicy::Fail,
                Policy::Ignore => FailurePolicy::Ignore,
            })
            .stays_registered(self.keep_config)
            .metrics(HookMetrics::register(&mut registry));
        if let Some(order) = self.order {
            builder = builder.order(order);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        (builder, registry)
    }

    /// Serves until `stop`.
    pub(super) async fn serve(
        &self,
        server: HookServer,
        socket: PathBuf,
        registry: Registry,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut admin = JoinSet::new();
        if let Some(address) = &self.http_endpoint {
            let endpoint = Admin::new()
                .metrics("/metrics", Arc::new(registry))
                .check("/healthz", || async { Ok(()) });
            let bound = endpoint.bind(address).await.context("--http-endpoint")?;
            info!(address = %bound.local_addr(), "serving /healthz and /metrics");
            admin.spawn(bound.serve(stop.clone()));
        }
        server.serve(&socket, &self.config_dir, stop).await?;
        admin.join_all().await;
        Ok(())
    }
}
