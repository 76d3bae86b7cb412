//! The local-storage driver and its registrar in this process, each on a socket of its own.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use rustix::{
    process::geteuid,
    thread::{CapabilitySet, capabilities},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::{Endpoint, fault::FaultPlan};
use wharf_driver::{
    node::{InlineLimits, NodeOptions, NodeVolumes},
    pool::{Pool, PoolOptions, PoolSettings},
    service::{Driver, Identity},
};
use wharf_mount::programs::Programs;
use wharf_registration::plugin::{Registrar, RegistrarOptions};

use super::scene::PATIENCE;

pub(super) const NAME: &str = "local.csi.wharf";
pub(super) const NODE: &str = "this-machine";

/// Programs of e2fsprogs that a volume's life takes.
const PROGRAMS: [&str; 3] = ["mkfs.ext4", "e2fsck", "resize2fs"];

/// What keeps this process from mounting volumes.
pub(super) fn missing() -> Option<String> {
    let admin = |set: CapabilitySet| set.contains(CapabilitySet::SYS_ADMIN);
    if !geteuid().is_root() || !capabilities(None).is_ok_and(|sets| admin(sets.effective)) {
        return Some("mounting needs root, so run it with sudo to see that, too".to_owned());
    }
    let programs = Programs::default();
    let program = PROGRAMS.iter().find(|program| !programs.has(program))?;
    Some(format!("{program} is not installed, which is part of e2fsprogs"))
}

/// A driver that serves, and says so to the plugin manager.
pub(super) struct Local {
    pool: Arc<Pool>,
    stop: CancellationToken,
    serving: JoinSet<anyhow::Result<()>>,
}

impl Local {
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let pool = open(folder).await?;
        let options = NodeOptions {
            program_limit: PATIENCE,
            kubelet_root: folder.to_owned(),
            cgroups: None,
            inline: InlineLimits::default(),
        };
        let node = Arc::new(NodeVolumes::new(pool.clone(), options));
        let identity = Identity { name: NAME.to_owned(), node: NODE.to_owned(), attach_limit: 16 };
        let driver = Arc::new(Driver::new(identity, pool.clone(), node));
        let plugin = driver.plugin(env!("CARGO_PKG_VERSION"), true).drain(PATIENCE).build()?;
        let socket = folder.join("local.sock");
        let endpoint: Endpoint = socket.display().to_string().parse()?;
        let registrar = Registrar::new(RegistrarOptions {
            csi_address: socket.clone(),
            kubelet_registration_path: socket.display().to_string(),
            registration_folder: folder.join("plugins_registry"),
            timeout: Duration::from_secs(1),
            metrics: None,
        });
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let stopped = stop.clone();
        serving.spawn(async move { Ok(plugin.serve(endpoint, stopped).await?) });
        let stopped = stop.clone();
        serving.spawn(async move { Ok(registrar.run(stopped).await?) });
        Ok(Self { pool, stop, serving })
    }

    /// How the pool copies images.
    pub(super) fn backend(&self) -> String {
        self.pool.default_backend().to_string()
    }

    /// Volumes and snapshots that the driver still knows.
    pub(super) fn known(&self) -> usize {
        self.pool.store().read(|state| state.volumes.len() + state.snapshots.len())
    }

    /// Ends both; an operation that is under way is finished first.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        let mut outcome = Ok(());
        while let Some(ended) = self.serving.join_next().await {
            outcome = outcome.and(ended.unwrap_or_else(|error| Err(anyhow!(error))));
        }
        outcome
    }
}

async fn open(folder: &Path) -> anyhow::Result<Arc<Pool>> {
    let root = folder.join("pool");
    let settings = PoolSettings { floor: Some(0), ..PoolSettings::default() };
    let options = PoolOptions { settings, freeze_limit: PATIENCE, faults: FaultPlan::none() };
    tokio::task::spawn_blocking(move || {
        std::fs::create_dir(&root)?;
        let (pool, _) = Pool::open(&root, options)?;
        pool.register_node(NODE)?;
        anyhow::Ok(Arc::new(pool))
    })
    .await?
    .context("the demo's pool")
}
