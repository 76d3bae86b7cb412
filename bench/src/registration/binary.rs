//! The release binary, in its own processes.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use wharf_testkit::process::Process;

const START: Duration = Duration::from_secs(10);

/// The measured `wharf`, and a folder for its output.
pub(super) struct Binary {
    path: PathBuf,
    folder: TempDir,
}

/// A minimal CSI driver.
pub(super) struct Driver {
    pub(super) socket: PathBuf,
    _process: Process,
}

impl Binary {
    /// The binary at `path`.
    pub(super) fn new(path: &Path) -> Result<Self> {
        ensure!(path.is_file(), "--binary {}: there is no such file", path.display());
        Ok(Self { path: path.to_owned(), folder: tempfile::tempdir()? })
    }

    /// The path of the binary.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the plugin manager on `root`, without a Kubernetes API.
    pub(super) fn manager(&self, root: &Path, flags: &[&str]) -> Result<Process> {
        let mut words: Vec<&OsStr> =
            vec!["plugins".as_ref(), "run".as_ref(), "--root".as_ref(), root.as_ref()];
        words.extend(flags.iter().map(OsStr::new));
        self.start("manager", &words)
    }

    /// Starts the demo's driver and waits for its socket.
    pub(super) async fn driver(&self) -> Result<Driver> {
        let socket = self.folder.path().join("csi.sock");
        // A driver that was killed leaves its socket.
        let _ = std::fs::remove_file(&socket);
        let mut process =
            self.start("driver", &["demo".as_ref(), "--driver".as_ref(), socket.as_ref()])?;
        let there = || std::future::ready(socket.exists().then_some(()));
        process.ready(START, "the driver's socket", there).await?;
        Ok(Driver { socket, _process: process })
    }

    fn start(&self, name: &str, words: &[&OsStr]) -> Result<Process> {
        let mut command = Command::new(&self.path);
        command.args(words);
        Process::start(name, &command, self.folder.path()).context("the release binary")
    }
}
