//! The driver's pool, for checks by tests.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use wharf_driver::inspect::Row;
use wharf_testkit::{
    process,
    rig::{Driver, PATIENCE},
};

/// The binary under test.
pub(crate) const WHARF: &str = env!("CARGO_BIN_EXE_wharf");

/// Views of a driver's pool.
pub(crate) trait PoolView {
    /// The folder with the images.
    fn images(&self) -> PathBuf;
    /// The images of volumes and snapshots, and what else is where they are made.
    fn files(&self) -> Vec<PathBuf>;
    /// The rows that `wharf driver pool ls` prints.
    async fn rows(&self) -> Result<Vec<Row>>;
}

impl PoolView for Driver {
    fn images(&self) -> PathBuf {
        wharf_driver::pool_image::folder(self.pool())
    }

    fn files(&self) -> Vec<PathBuf> {
        let folders = ["volumes", "snapshots", "partial", "quarantine"];
        let folders = folders.map(|name| self.images().join(name));
        let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    }

    async fn rows(&self) -> Result<Vec<Row>> {
        let mut command = Command::new(WHARF);
        command.args(["driver", "pool", "ls", "--output", "json", "--pool"]).arg(self.pool());
        Ok(serde_json::from_str(&process::run(&command, PATIENCE).await?)?)
    }
}

/// The binary's path, for what starts programs of it.
pub(crate) fn wharf() -> &'static Path {
    Path::new(WHARF)
}
