//! `wharf hooks static`: a hook server that adjusts pods and containers by a file of rules.

mod file;
mod pattern;
mod reload;
mod rule;
mod selector;
mod server;
mod set;

use std::{io::Write, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Args;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::{file::Rules, server::RuleServer};
use super::serving::Serving;
use crate::runtime::{self, Threads};

/// Adjusts pods and containers by the rules of a YAML file
///
/// Rules match pods by namespace, labels and QoS class, and set cpusets, shares, quotas, memory,
/// environment variables, annotations and the cgroup parent. All matching rules apply in the file's
/// order; later rules win. The server watches the file: a new version applies to later calls, and a
/// version with a mistake is refused as a whole, so that the last good version stays in force.
/// docs/hooks.md has the reference.
#[derive(Args)]
pub(crate) struct Static {
    /// File with the rules
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// Check the rules and exit
    #[arg(long)]
    check: bool,
    /// Socket to serve hooks on; its folder is created if it is missing
    #[arg(long, value_name = "SOCKET", required_unless_present = "check")]
    socket: Option<PathBuf>,
    /// Name of the server, and of its file in --config-dir
    #[arg(long, value_name = "NAME", default_value = "wharf-static")]
    name: String,
    #[command(flatten)]
    serving: Serving,
}

impl Static {
    pub(crate) fn run(self) -> ExitCode {
        if self.check {
            return runtime::run(Threads::One, |_| self.checked());
        }
        let guard = self.serving.log.init();
        let code = runtime::run(Threads::One, |stop| self.serve(stop));
        drop(guard);
        code
    }

    async fn checked(self) -> anyhow::Result<ExitCode> {
        let rules = Rules::load(&self.rules).await?;
        let points: Vec<_> = rules.points().iter().map(|point| point.name()).collect();
        let (count, points) = (rules.len(), points.join(", "));
        writeln!(std::io::stdout(), "{}: {count} rules for {points}", self.rules.display())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let socket = self.socket.clone().context("--socket is required")?;
        let rules = Rules::load(&self.rules).await?;
        info!(file = %self.rules.display(), rules = rules.len(), "rules loaded");
        let (points, hooks) = (rules.points(), Arc::new(RuleServer::new(rules)));
        let (builder, registry) = self.serving.builder(&self.name);
        let server = builder
            .pre_run_pod_sandbox(hooks.clone())
            .pre_create_container(hooks.clone())
            .pre_update_container_resources(hooks.clone())
            .build()
            .context("--name, --timeout")?;
        server.narrow(&points);

        let mut watching = JoinSet::new();
        watching.spawn(reload::watch(self.rules, hooks, server.clone(), stop.clone()));
        let served = self.serving.serve(server, socket, registry, stop.clone()).await;
        stop.cancel();
        watching.join_all().await;
        served.map(|()| ExitCode::SUCCESS)
    }
}
