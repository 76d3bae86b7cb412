use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use clap::Args;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wharf_cli::{Admin, CheckFailure, process_metrics};
use wharf_proto::pluginregistration::{CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN};
use wharf_registration::{
    csi::{
        AllocatableRefresh, CsiHandler, CsiOptions,
        node::{ApiObjects, NoApi, NodeObjects, NodeRecord, RecordOptions},
    },
    device::{DeviceHandler, LegacyServer},
    dra::DraHandler,
    manager::{Handlers, ManagerOptions, PluginManager},
};
use wharf_uds::RpcMetrics;

use crate::runtime::{self, LogArgs, Threads, duration};

/// Runs the plugin manager, which does the kubelet's work with plugins.
///
/// It calls GetInfo on each new socket in the folder, validates and registers the plugin. CSI
/// drivers are written to the CSINode object with --kubeconfig, and kept in memory only without it.
#[derive(Args)]
pub(crate) struct Run {
    /// The plugins_registry folder to manage; created if it is missing
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Kubeconfig of the API server, for the CSINode and Node objects
    #[arg(long, value_name = "FILE", requires = "node")]
    kubeconfig: Option<PathBuf>,
    /// Name of this node's Node object
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    node: Option<String>,
    /// Also serve kubelet.sock in this folder, for device plugins that register by themselves;
    /// sockets in it are removed
    #[arg(long, value_name = "DIR")]
    device_plugins: Option<PathBuf>,
    /// Time for which a disconnected driver keeps its CSINode entry
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    csinode_grace: Duration,
    /// Interval at which the folder is scanned, in case an event was lost
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    rescan: Duration,
    /// Serve /healthz, /readyz and /metrics at this address, such as 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    http_endpoint: Option<String>,
    #[command(flatten)]
    log: LogArgs,
}

impl Run {
    pub(crate) fn run(self) -> ExitCode {
        let guard = self.log.init();
        let code = runtime::run(Threads::Cores, |stop| self.manage(stop));
        drop(guard);
        code
    }

    async fn manage(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let mut registry = Registry::default();
        process_metrics(&mut registry);
        let client = match &self.kubeconfig {
            Some(path) => Some(wharf_cluster::connect(Some(path)).await?),
            None => None,
        };
        let objects: Arc<dyn NodeObjects> = match (&client, &self.node) {
            (Some(client), Some(node)) => Arc::new(ApiObjects::new(client.clone(), node)),
            _ => {
                warn!("registering CSI drivers in memory only: no --kubeconfig");
                Arc::new(NoApi)
            }
        };
        let record = NodeRecord::start(
            objects,
            RecordOptions { grace: self.csinode_grace, ..RecordOptions::default() },
        );
        let metrics = RpcMetrics::register(&mut registry);
        let csi = Arc::new(CsiHandler::new(
            record.clone(),
            CsiOptions { metrics: Some(metrics), ..CsiOptions::default() },
        ));
        registry.register_collector(Box::new(csi.drivers()));
        let refresh = client.map(|client| AllocatableRefresh::start(client, &csi, record.clone()));
        let devices = DeviceHandler::default();
        let legacy = match &self.device_plugins {
            Some(folder) => Some(LegacyServer::start(folder, devices.clone())?),
            None => None,
        };
        let handlers = Handlers::new()
            .with(CSI_PLUGIN, csi)
            .with(DEVICE_PLUGIN, Arc::new(devices))
            .with(DRA_PLUGIN, Arc::new(DraHandler::default()));
        let manager = PluginManager::start(
            ManagerOptions { rescan: self.rescan, ..ManagerOptions::new(&self.root) },
            handlers,
        );
        manager.register_metrics(&mut registry);
        info!(root = %self.root.display(), "plugin manager started");

        let mut serving = JoinSet::new();
        if let Some(address) = &self.http_endpoint {
            let bound = admin(&manager, registry).bind(address).await.context("admin endpoint")?;
            info!(address = %bound.local_addr(), "serving /healthz, /readyz and /metrics");
            serving.spawn(bound.serve(stop.clone()));
        }
        stop.cancelled().await;
        manager.stop().await;
        if let Some(legacy) = legacy {
            legacy.stop().await;
        }
        if let Some(refresh) = refresh {
            refresh.stop().await;
        }
        record.stop().await;
        serving.join_all().await;
        Ok(ExitCode::SUCCESS)
    }
}

fn admin(manager: &PluginManager, registry: Registry) -> Admin {
    let synced = manager.synced();
    Admin::new()
        .metrics("/metrics", Arc::new(registry))
        .check("/healthz", || async { Ok(()) })
        .check("/readyz", move || {
            let synced = *synced.borrow();
            async move {
                match synced {
                    true => Ok(()),
                    false => Err(CheckFailure::new(
                        503,
                        "the plugin folder is not watched yet: see the log",
                    )),
                }
            }
        })
}
