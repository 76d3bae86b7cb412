use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// Limit for a process to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);

/// The processes of the driver and the registrar.
pub(super) struct Children {
    driver: Child,
    registrar: Child,
}

impl Children {
    /// Starts both from this binary. They are killed when this is dropped.
    pub(super) fn start(folder: &Path, verbose: bool) -> anyhow::Result<Self> {
        let socket = folder.join("csi.sock");
        let binary = std::env::current_exe().context("this binary's own path")?;
        let spawn = |args: &[&std::ffi::OsStr]| {
            Command::new(&binary)
                .args(args)
                .stdin(Stdio::null())
                .stderr(if verbose { Stdio::inherit() } else { Stdio::null() })
                .kill_on_drop(true)
                .spawn()
                .with_context(|| format!("starting {}", binary.display()))
        };
        Ok(Self {
            driver: spawn(&["demo".as_ref(), "--driver".as_ref(), socket.as_ref()])?,
            registrar: spawn(&[
                "registrar".as_ref(),
                "--csi-address".as_ref(),
                socket.as_ref(),
                "--kubelet-registration-path".as_ref(),
                socket.as_ref(),
                "--plugin-registration-path".as_ref(),
                folder.join("plugins_registry").as_ref(),
            ])?,
        })
    }

    /// Kills the driver, which leaves its socket behind.
    pub(super) async fn kill_driver(&mut self) -> anyhow::Result<()> {
        self.driver.kill().await.context("killing the driver")
    }

    /// Stops both with SIGTERM, as a pod is stopped. The registrar must remove its socket and exit
    /// with 0.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let ended = stop(&mut self.registrar).await?;
        ensure!(ended == Some(0), "the registrar exited with {ended:?} instead of 0");
        stop(&mut self.driver).await?;
        Ok(())
    }
}

/// Stops a process with SIGTERM, and returns its exit code; `None` if a signal ended it.
async fn stop(child: &mut Child) -> anyhow::Result<Option<i32>> {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        kill_process(pid, Signal::TERM).context("asking a process to stop")?;
    }
    let status = tokio::time::timeout(PATIENCE, child.wait())
        .await
        .with_context(|| format!("a process did not stop within {PATIENCE:?}"))??;
    Ok(status.code())
}
