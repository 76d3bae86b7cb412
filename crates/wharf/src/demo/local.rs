//! The local-storage driver and its registrar in this process, each on its own socket.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use rustix::{
    process::geteuid,
    thread::{CapabilitySet, capabilities},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::Endpoint;
use wharf_driver::{
    config::PoolConfig,
    pools::{Pools, PoolsOptions},
    service::{Driver, Identity},
    state_dir::StateDir,
};
use wharf_mount::programs::Programs;
use wharf_registration::plugin::{Registrar, RegistrarOptions};

use super::scene::PATIENCE;

pub(super) const NAME: &str = "local.csi.wharf";
pub(super) const NODE: &str = "this-machine";

/// Programs of e2fsprogs that the demo needs.
const PROGRAMS: [&str; 3] = ["mkfs.ext4", "e2fsck", "resize2fs"];

/// Why this process cannot mount volumes; `None` if it can.
pub(super) fn missing() -> Option<String> {
    let admin = |set: CapabilitySet| set.contains(CapabilitySet::SYS_ADMIN);
    if !geteuid().is_root() || !capabilities(None).is_ok_and(|sets| admin(sets.effective)) {
        return Some("mounting needs root: run the demo with sudo to include it".to_owned());
    }
    let programs = Programs::default();
    let program = PROGRAMS.iter().find(|program| !programs.has(program))?;
    Some(format!("{program} is not installed: install e2fsprogs"))
}

/// The running driver and its registrar.
pub(super) struct Local {
    pools: Arc<Pools>,
    stop: CancellationToken,
    serving: JoinSet<anyhow::Result<()>>,
}

impl Local {
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let pools = open(folder).await?;
        let identity = Identity { name: NAME.to_owned(), node: NODE.to_owned(), attach_limit: 16 };
        let driver = Arc::new(Driver::new(identity, pools.clone()));
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
        Ok(Self { pools, stop, serving })
    }

    /// The name of the pool's backend, which determines how images are copied.
    pub(super) fn backend(&self) -> String {
        let backends =
            self.pools.served().into_iter().map(|it| it.pool.default_backend().to_string());
        backends.collect()
    }

    /// Number of volumes and snapshots that the driver knows.
    pub(super) fn known(&self) -> usize {
        let served = self.pools.served().into_iter();
        served
            .map(|it| it.pool.store().read(|state| state.volumes.len() + state.snapshots.len()))
            .sum()
    }

    /// Stops both, after operations under way have finished.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        let mut outcome = Ok(());
        while let Some(ended) = self.serving.join_next().await {
            outcome = outcome.and(ended.unwrap_or_else(|error| Err(anyhow!(error))));
        }
        outcome
    }
}

async fn open(folder: &Path) -> anyhow::Result<Arc<Pools>> {
    let mut config = PoolConfig::in_folder(folder.join("pool"));
    config.settings.floor = Some(0);
    let options = PoolsOptions::on_node(NODE, folder);
    let state = folder.join("state");
    tokio::task::spawn_blocking(move || {
        let state_dir = StateDir::open(&state, NAME)?;
        anyhow::Ok(Pools::open(vec![config], state_dir, options)?)
    })
    .await?
    .context("the demo's pool")
}
