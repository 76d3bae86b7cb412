//! Runs the driver: flags, pools, sockets, and the order of its start and end.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use clap::Args;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;
use wharf_cli::{Admin, CheckFailure, process_metrics};
use wharf_csi_sdk::{DriverMetrics, Endpoint, Readiness, Services, Socket, fault::FaultPlan};
use wharf_driver::{
    admin,
    config::{PoolConfig, PoolFlag, check_image_size},
    metrics::PoolMetrics,
    node::{InlineLimits, NodeOptions},
    points::Point,
    pool::{Kinds, PoolSettings, Share, ThinRatio},
    pools::{Pools, PoolsOptions},
    service::{Driver, Identity},
    state_dir::StateDir,
};
use wharf_facts::quantity;

use super::{DRIVER_NAME, STATE_DIR, config};
use crate::runtime::{self, LogArgs, Threads, duration};

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    place: Place,
    /// Serve the controller service on this socket, and only the node service on --endpoint
    #[arg(long, value_name = "SOCKET")]
    controller_endpoint: Option<Endpoint>,
    /// Keep the only pool in an XFS image of this size in --pool, so that snapshots share blocks on
    /// any filesystem
    #[arg(long, value_name = "SIZE", value_parser = image_size, conflicts_with = "config")]
    pool_image: Option<u64>,
    /// Name of the driver: the provisioner of its StorageClasses
    #[arg(long, value_name = "NAME", default_value = DRIVER_NAME)]
    driver_name: String,
    /// Require ControllerPublishVolume (a VolumeAttachment) before a volume is staged
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    attach: bool,
    /// Maximum number of volumes on the node
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..))]
    attach_limit: u64,
    /// Folder on the node's own disk for the record of served pools and the admin socket
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
    /// Bytes of each pool that are never promised to volumes. Default: 1 % of the pool, at least
    /// 64Mi and at most 10Gi. At least a thousandth of the pool is kept for its filesystem
    #[arg(long, value_name = "SIZE", value_parser = bytes, conflicts_with = "config")]
    floor: Option<u64>,
    /// Kinds of volumes that may be created: thick, thin or thick,thin. Existing volumes of every
    /// kind are served
    #[arg(long, value_name = "KINDS", default_value_t, conflicts_with = "config")]
    kinds: Kinds,
    /// Bytes of thin volumes that may be promised per byte of the pool, such as 10 or 1.5
    #[arg(long, value_name = "RATIO", default_value = "10", conflicts_with = "config")]
    thin_ratio: ThinRatio,
    /// Free space below which the driver creates, copies and grows no thin volume: a percentage of
    /// the pool, or a size such as 2Gi
    #[arg(long, value_name = "SHARE", default_value_t, conflicts_with = "config")]
    thin_floor: Share,
    /// Time for which a mounted filesystem may be frozen while a pool without reflinks copies it
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    freeze_limit: Duration,
    /// Limit for each run of mkfs, fsck and resize2fs
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    program_limit: Duration,
    /// The kubelet's folder. Its path may contain symlinks; symlinks below it are refused
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_root: PathBuf,
    /// Mount point of cgroups: I/O limits of a volume are written to the cgroups of its pods
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup")]
    cgroup_root: PathBuf,
    /// Largest inline volume of a pod, such as 4Gi. Default: limited by the pool's space
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    inline_max_size: Option<u64>,
    /// Maximum number of inline volumes of one pod. Default: no limit. Needs podInfoOnMount in the
    /// CSIDriver object
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

/// Flags that are required without a subcommand.
#[derive(Args)]
struct Place {
    /// Socket to serve CSI on, such as unix:///csi/csi.sock; must end in .sock
    #[arg(long, value_name = "SOCKET", env = "CSI_ENDPOINT", required = true)]
    endpoint: Option<Endpoint>,
    /// Folder of the volumes, created if it is missing. DIR alone is the pool `default`; repeat
    /// NAME=DIR for several pools
    #[arg(
        long,
        value_name = "[NAME=]DIR",
        required_unless_present = "config",
        conflicts_with = "config"
    )]
    pool: Vec<PoolFlag>,
    /// YAML file with the pools; changes take effect without a restart
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of this node in Kubernetes
    #[arg(long, value_name = "NAME", required = true)]
    node: Option<String>,
}

impl Serve {
    pub(crate) fn run(self) -> ExitCode {
        let guard = self.log.init();
        let code = runtime::run(Threads::Cores, |stop| self.serve(stop));
        drop(guard);
        code
    }

    async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let Place { endpoint: Some(endpoint), node: Some(name), .. } = &self.place else {
            anyhow::bail!("--endpoint and --node are required");
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

    /// Opens the pools, and finishes or undoes on them and on the node what a crash cut short.
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

    /// The pools in the flags or in the file.
    fn configs(&self) -> anyhow::Result<Vec<PoolConfig>> {
        if let Some(file) = &self.place.config {
            return config::read(file);
        }
        let flags = &self.place.pool;
        if self.pool_image.is_some() && flags.len() > 1 {
            anyhow::bail!(
                "--pool-image works with one --pool: set the images of several pools in --config"
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

/// Parses a quantity such as 2Gi.
fn bytes(text: &str) -> Result<u64, String> {
    quantity::parse(text)?.try_into().map_err(|_| "expected a size of 0 or more".to_owned())
}

/// Parses the size of a pool image.
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
