//! Reads, checks and reloads the file that names the driver's pools.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context;
use clap::Args;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use wharf_driver::{
    config::{self, PoolConfig},
    pools::Pools,
};

use crate::follow::follow;

#[derive(Args)]
pub(crate) struct CheckConfig {
    /// The file to check
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl CheckConfig {
    pub(super) fn run(&self) -> ExitCode {
        match self.check() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("wharf driver check-config: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        for pool in read(&self.file)? {
            let image = if pool.image.is_some() { ", in an image" } else { "" };
            let drained = if pool.settings.drain { ", drained" } else { "" };
            let (folder, kinds) = (pool.folder.display(), pool.settings.kinds);
            writeln!(out, "{}: {folder}{image}, {kinds}{drained}", pool.name)?;
        }
        Ok(())
    }
}

/// Reads and checks the file.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<PoolConfig>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read --config {}", file.display()))?;
    config::parse(&text).with_context(|| file.display().to_string())
}

/// Puts each good version of the file in force, until `stop`.
pub(super) async fn watch(file: PathBuf, pools: Arc<Pools>, stop: CancellationToken) {
    let load = || {
        let (file, pools, stop) = (file.clone(), pools.clone(), stop.clone());
        async move {
            let applied = tokio::task::spawn_blocking(move || load(&file, &pools));
            // A panic is logged; the next change of the file is loaded again.
            let _ = stop.run_until_cancelled(applied).await;
        }
    };
    follow(&file, stop.clone(), load).await;
}

/// Applies the file. Applying the same version twice changes nothing.
fn load(file: &Path, pools: &Arc<Pools>) {
    let applied = read(file).and_then(|configs| Ok(pools.apply(configs)?));
    match applied {
        Ok(()) => info!(file = %file.display(), "configuration in force"),
        Err(error) => {
            let error = format!("{error:#}");
            error!(error, "failed to apply configuration, keeping the last good one");
        }
    }
}
