//! A cluster, and a driver for each side.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::Signal;
use tempfile::TempDir;
use wharf_testkit::{
    cluster::Cluster,
    process::{self, Process},
};

use super::{
    api::Api,
    objects,
    side::{Programs, Side, Surroundings},
};
use crate::usage::Usage;

const START: Duration = Duration::from_secs(20);
/// How long servers may take to become idle, and the period of looking.
const REST: Duration = Duration::from_secs(10);
const SPAN: Duration = Duration::from_millis(200);

/// The environment of sidecars.
pub(super) struct Rig {
    // Fields are dropped in this order: the drivers' folder last.
    drivers: Vec<(Side, Process)>,
    pub(super) cluster: Cluster,
    pub(super) api: Api,
    folder: TempDir,
}

impl Rig {
    /// `None` without a kube-apiserver.
    pub(super) async fn start(
        programs: &Programs,
        sides: &[Side],
        audited: bool,
    ) -> Result<Option<Self>> {
        let Some(cluster) = Cluster::builder().audited(audited).start().await? else {
            return Ok(None);
        };
        let mut install = Command::new(&programs.wharf);
        install.args(["crds", "install", "--kubeconfig"]).arg(cluster.kubeconfig());
        process::run(&install, START).await?;
        let api = Api::connect(cluster.kubeconfig()).await?;
        for (path, object) in objects::classes(&Side::ALL.map(Side::driver)) {
            api.post(&path, &object).await?;
        }
        let mut rig = Self { drivers: Vec::new(), cluster, api, folder: tempfile::tempdir()? };
        for &side in sides {
            rig.start_driver(side).await?;
        }
        Ok(Some(rig))
    }

    /// The flags and files for sidecars of this side.
    pub(super) fn surroundings(&self, side: Side) -> Surroundings {
        Surroundings {
            kubeconfig: self.cluster.kubeconfig().to_owned(),
            socket: self.socket(side),
            folder: self.folder.path().to_owned(),
        }
    }

    /// Processor time of kube-apiserver and etcd.
    pub(super) fn servers(&self) -> Result<Duration> {
        self.cluster.server_ids().into_iter().map(|id| Ok(Usage::of(id)?.processor())).sum()
    }

    /// Waits until the servers have finished earlier work.
    pub(super) async fn rest(&self) -> Result<()> {
        let end = Instant::now() + REST;
        loop {
            let before = self.servers()?;
            tokio::time::sleep(SPAN).await;
            let busy = self.servers()?.saturating_sub(before);
            if busy < SPAN / 20 || Instant::now() > end {
                return Ok(());
            }
        }
    }

    /// Stops everything.
    pub(super) async fn stop(self) -> Result<()> {
        drop(self.drivers);
        self.cluster.stop().await
    }

    async fn start_driver(&mut self, side: Side) -> Result<()> {
        let driver = self.driver_at(side, &self.socket(side)).await?;
        self.drivers.push((side, driver));
        Ok(())
    }

    /// Another process of the driver, with its own socket.
    pub(super) async fn driver_at(&self, side: Side, socket: &Path) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["sidecars-part", "driver", "--name", side.driver(), "--socket"]).arg(socket);
        let name = socket.file_stem().unwrap_or_default().to_string_lossy();
        let mut driver = Process::start(&format!("driver-{name}"), &command, self.folder.path())?;
        let there = || std::future::ready(socket.exists().then_some(()));
        driver.ready(START, "the driver's socket", there).await.context("the driver")?;
        Ok(driver)
    }

    /// Kills the driver of a side with SIGKILL.
    pub(super) fn kill_driver(&mut self, side: Side) -> Result<()> {
        for (_, driver) in self.drivers.iter().filter(|(of, _)| *of == side) {
            driver.signal(Signal::KILL)?;
        }
        Ok(())
    }

    fn socket(&self, side: Side) -> PathBuf {
        self.folder.path().join(format!("{}.sock", side.word()))
    }
}
