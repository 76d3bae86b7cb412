//! The file that names the driver's pools: read, checked and followed.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};
use wharf_driver::{
    config::{self, PoolConfig},
    pools::Pools,
};

/// A file of a ConfigMap is a symlink through a hidden folder: its change is seen by this look at the latest.
const RESCAN: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct CheckConfig {
    /// The file
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
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut changes = DirWatch::start(Options {
        root: folder.to_owned(),
        depth: Depth::Folder,
        kind: Kind::File,
        rescan: RESCAN,
        create_root: None,
    });
    while let Some(Some(change)) = stop.run_until_cancelled(changes.next()).await {
        let is_own = |path: &Path| path.file_name() == file.file_name();
        match change {
            Change::Appeared { path, .. } | Change::Replaced { path, .. } if is_own(&path) => {
                let (file, pools) = (file.clone(), pools.clone());
                // A panic shows in the log; the next change of the file is looked at again.
                let _ = tokio::task::spawn_blocking(move || load(&file, &pools)).await;
            }
            Change::Vanished { path } if is_own(&path) => {
                warn!(file = %file.display(), "configuration is gone, the last one stays in force");
            }
            Change::Trouble { message } => {
                warn!(file = %file.display(), message, "changes of the configuration may be seen late");
            }
            _ => {}
        }
    }
    changes.stop().await;
}

/// The first look finds the file that was read at the start; to apply it again changes nothing.
fn load(file: &Path, pools: &Pools) {
    let applied = read(file).and_then(|configs| Ok(pools.apply(configs)?));
    match applied {
        Ok(()) => info!(file = %file.display(), "configuration in force"),
        Err(error) => {
            let error = format!("{error:#}");
            error!(error, "failed to apply configuration, the last good one stays in force");
        }
    }
}
