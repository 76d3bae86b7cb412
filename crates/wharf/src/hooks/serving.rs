//! Flags and serving that the hook servers of this binary share.

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

use crate::runtime::{LogArgs, duration};

/// Flags of a hook server: the file by which the proxy finds it, and its HTTP endpoint.
#[derive(Args)]
pub(super) struct Serving {
    /// The proxy's --hooks-dir, for the file of this server; created if it is missing
    #[arg(long, value_name = "DIR", default_value = hook::FOLDER)]
    config_dir: PathBuf,
    /// Position among other servers: the proxy calls lower numbers first, equal ones by name
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    order: Option<i32>,
    /// What the proxy does when this server does not answer or answers with an error
    #[arg(long, value_name = "POLICY", default_value = "Ignore")]
    failure_policy: Policy,
    /// Time that the proxy waits for this server, within its --hook-budget for all servers
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Keep the file in --config-dir when this server stops. With --failure-policy=Fail no pod
    /// starts then until it is back
    #[arg(long)]
    keep_config: bool,
    /// Serve /healthz and /metrics at this address, such as 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    http_endpoint: Option<String>,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// The failure policy in a server's file.
#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// The kubelet's call fails, and the kubelet retries
    #[value(name = "Fail")]
    Fail,
    /// The call goes on without this server
    #[value(name = "Ignore")]
    Ignore,
}

impl Serving {
    /// A server with these flags and no hooks. Registers its metrics.
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
