//! The driver as a program.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;
use wharf_cli::{Admin, CheckFailure, process_metrics};
use wharf_csi_sdk::fault::FaultPlan;
use wharf_csi_sdk::{DriverMetrics, Endpoint, Readiness, Services, Socket};
use wharf_driver::admin;
use wharf_driver::config::{PoolConfig, PoolFlag, check_image_size};
use wharf_driver::metrics::PoolMetrics;
use wharf_driver::node::{InlineLimits, NodeOptions};
use wharf_driver::points::Point;
use wharf_driver::pool::{Kinds, PoolSettings, Share, ThinRatio};
use wharf_driver::pools::{Pools, PoolsOptions};
use wharf_driver::service::{Driver, Identity};
use wharf_driver::state_dir::StateDir;
use wharf_facts::quantity;

use super::{DRIVER_NAME, STATE_DIR, config};
use crate::running::{self, LogArgs, Threads, duration};

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    place: Place,
    /// Serve the controller on a socket of its own, and only the node service on --endpoint
    #[arg(long, value_name = "SOCKET")]
    controller_endpoint: Option<Endpoint>,
    /// Keep the one pool in an XFS image of this size in --pool, so that snapshots share blocks on any filesystem
    #[arg(long, value_name = "SIZE", value_parser = image_size, conflicts_with = "config")]
    pool_image: Option<u64>,
    /// Name of the driver, as StorageClasses give it
    #[arg(long, value_name = "NAME", default_value = DRIVER_NAME)]
    driver_name: String,
    /// Have volumes published to the node by the controller before they are staged
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    attach: bool,
    /// How many volumes the node takes
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..))]
    attach_limit: u64,
    /// Folder on the node's own disk that remembers which pools were served, and holds the admin socket
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
    /// Bytes of each pool that are never promised; a hundredth of it by default, at least 64Mi and at most 10Gi. With less,
    /// a thousandth of the pool is kept for its filesystem
    #[arg(long, value_name = "SIZE", value_parser = bytes, conflicts_with = "config")]
    floor: Option<u64>,
    /// Kinds of volumes that may be created: thick, thin or thick,thin. Volumes that exist are served whatever their kind
    #[arg(long, value_name = "KINDS", default_value_t, conflicts_with = "config")]
    kinds: Kinds,
    /// Bytes of thin volumes that may be promised per byte of the pool, such as 10 or 1.5
    #[arg(long, value_name = "RATIO", default_value = "10", conflicts_with = "config")]
    thin_ratio: ThinRatio,
    /// Free space below which no thin volume is created, copied or grown: a percentage of the pool, or a size such as 2Gi
    #[arg(long, value_name = "SHARE", default_value_t, conflicts_with = "config")]
    thin_floor: Share,
    /// How long a mounted filesystem may stand still while a pool without reflinks copies it
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    freeze_limit: Duration,
    /// How long mkfs, fsck and resize2fs may take, each
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    program_limit: Duration,
    /// The kubelet's folder; it may be reached through a symlink, while symlinks below it are refused
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_root: PathBuf,
    /// Where cgroups are mounted; limits of volumes are written to those of the pods that use them
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    cgroup_root: PathBuf,
    /// Largest volume that a pod may declare inline, such as 4Gi; without it any that fits on the pool
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    inline_max_size: Option<u64>,
    /// Volumes that one pod may declare inline; without it any number. Needs podInfoOnMount in the CSIDriver object
    #[arg(long, value_name = "COUNT")]
    inline_max_per_pod: Option<u64>,
    /// Serve /healthz, /readyz and /metrics at this address, such as 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    http_endpoint: Option<String>,
    /// For tests: kill or fail the driver at a step, such as kill:CreatePromised
    #[arg(long, value_name = "PLAN", hide_short_help = true, value_parser = FaultPlan::parse::<Point>, default_value = "")]
    fault: FaultPlan,
    #[command(flatten)]
    log: LogArgs,
}

/// What has to be said, unless a subcommand takes its place.
#[derive(Args)]
struct Place {
    /// Socket to serve CSI on, such as unix:///csi/csi.sock; must end in .sock
    #[arg(long, value_name = "SOCKET", env = "CSI_ENDPOINT", required = true)]
    endpoint: Option<Endpoint>,
    /// Folder that holds the volumes, made if it is not there. DIR alone is the pool `default`; give NAME=DIR, several
    /// times, for more pools
    #[arg(
        long,
        value_name = "[NAME=]DIR",
        required_unless_present = "config",
        conflicts_with = "config"
    )]
    pool: Vec<PoolFlag>,
    /// YAML file that names the pools; its changes take effect without a restart
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of this node, as the orchestrator knows it
    #[arg(long, value_name = "NAME", required = true)]
    node: Option<String>,
}

impl Serve {
    pub(crate) fn run(self) -> ExitCode {
        let guard = self.log.init();
        let code = running::run(Threads::Cores, |stop| self.serve(stop));
        drop(guard);
        code
    }

    async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let Place { endpoint: Some(endpoint), node: Some(name), .. } = &self.place else {
            anyhow::bail!("--endpoint and --node are needed");
        };
        let mut registry = Registry::default();
        process_metrics(&mut registry);
        let pools = self.open(name).await?;
        registry.register_collector(Box::new(PoolMetrics::new(pools.clone())));

        let identity = Identity {
            name: self.driver_name.clone(),
            node: name.clone(),
            attach_limit: self.attach_limit,
        };
        let driver = Arc::new(Driver::new(identity, pools.clone()));
        let readiness = Readiness::starting();
        let plugin = driver
            .plugin(env!("CARGO_PKG_VERSION"), self.attach)
            .readiness(readiness.clone())
            .metrics(DriverMetrics::register(&mut registry))
            .build()?;
        let server = plugin.bind(self.sockets(endpoint))?;
        let socket = pools.state_dir().own_admin_socket();
        let questions = admin::bind(&socket)
            .with_context(|| format!("admin socket {} in --state-dir", socket.display()))?;

        let mut serving = JoinSet::new();
        serving.spawn(admin::serve(questions, pools.clone(), stop.clone()));
        serving.spawn(pools.clone().supervise(stop.clone()));
        if let Some(file) = self.place.config.clone() {
            serving.spawn(config::watch(file, pools.clone(), stop.clone()));
        }
        if let Some(address) = &self.http_endpoint {
            let bound = health(driver, registry).bind(address).await.context("admin endpoint")?;
            info!(address = %bound.local_addr(), "serving /healthz, /readyz and /metrics");
            serving.spawn(bound.serve(stop.clone()));
        }
        readiness.set_ready();
        server.run(stop).await?;
        serving.join_all().await;
        tokio::task::spawn_blocking(move || pools.close()).await?;
        Ok(ExitCode::SUCCESS)
    }

    /// Opens the pools and brings them and the node to a state from which every call can go on.
    async fn open(&self, node: &str) -> anyhow::Result<Arc<Pools>> {
        let configs = self.configs()?;
        let options = PoolsOptions {
            node_id: node.to_owned(),
            node: NodeOptions {
                program_limit: self.program_limit,
                kubelet_root: self.kubelet_root.clone(),
                cgroups: Some(self.cgroup_root.clone()),
                inline: InlineLimits {
                    max_size: self.inline_max_size,
                    max_per_pod: self.inline_max_per_pod,
                },
            },
            freeze_limit: self.freeze_limit,
            faults: self.fault.clone(),
        };
        let (state_dir, driver) = (self.state_dir.clone(), self.driver_name.clone());
        let named = match &self.place.config {
            Some(file) => format!("--config {}", file.display()),
            None => self.place.pool.iter().map(|pool| format!("--pool {pool}")).collect(),
        };
        tokio::task::spawn_blocking(move || {
            let state_dir = StateDir::open(&state_dir, &driver).context("--state-dir")?;
            Pools::open(configs, state_dir, options).context(named)
        })
        .await?
    }

    /// The pools that flags or the file name.
    fn configs(&self) -> anyhow::Result<Vec<PoolConfig>> {
        if let Some(file) = &self.place.config {
            return config::read(file);
        }
        let flags = &self.place.pool;
        if self.pool_image.is_some() && flags.len() > 1 {
            anyhow::bail!(
                "--pool-image is for one --pool: give several pools their images in --config"
            );
        }
        let settings = PoolSettings {
            kinds: self.kinds,
            floor: self.floor,
            thin_ratio: self.thin_ratio,
            thin_floor: self.thin_floor,
            drain: false,
        };
        let config = |flag: &PoolFlag| PoolConfig {
            name: flag.name.clone(),
            folder: flag.folder.clone(),
            image: self.pool_image,
            settings,
        };
        let configs: Vec<_> = flags.iter().map(config).collect();
        wharf_driver::config::check(&configs).context("--pool")?;
        Ok(configs)
    }

    fn sockets(&self, endpoint: &Endpoint) -> Vec<Socket> {
        match &self.controller_endpoint {
            None => vec![Socket::new(endpoint.clone(), Services::All)],
            Some(controller) => vec![
                Socket::new(endpoint.clone(), Services::Node),
                Socket::new(controller.clone(), Services::Controller),
            ],
        }
    }
}

/// A size that people write.
fn bytes(text: &str) -> Result<u64, String> {
    quantity::parse(text)?.try_into().map_err(|_| "expected a size of 0 or more".to_owned())
}

/// The size of a pool image.
fn image_size(text: &str) -> Result<u64, String> {
    let size = bytes(text)?;
    check_image_size(size).map(|()| size)
}

fn health(driver: Arc<Driver>, registry: Registry) -> Admin {
    Admin::new()
        .metrics("/metrics", Arc::new(registry))
        .check("/healthz", || async { Ok(()) })
        .check("/readyz", move || {
            let driver = driver.clone();
            async move {
                match driver.pool_ailment().await {
                    None => Ok(()),
                    Some(message) => Err(CheckFailure::new(503, message)),
                }
            }
        })
}
