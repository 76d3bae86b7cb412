//! A running driver process.

use std::{
    ops::Deref, os::unix::process::ExitStatusExt, path::Path, process::Command, time::Duration,
};

use anyhow::{Result, bail};
use rustix::process::Signal;
use wharf_testkit::process::Process;

use crate::client::Client;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A driver and a client of it.
pub(crate) struct Running {
    process: Process,
    client: Client,
}

impl Running {
    /// Starts a driver and waits until it says that it is ready; its own end is an error.
    pub(crate) async fn start(command: &Command, folder: &Path, socket: &Path) -> Result<Self> {
        let mut process = Process::start("driver", command, folder)?;
        let client = Client::new(socket);
        tokio::select! {
            ready = client.ready(PATIENCE) => ready?,
            ended = process.wait(PATIENCE) => bail!("ended with {}:\n{}", ended?, process.tail()),
        }
        Ok(Self { process, client })
    }

    /// Everything that it and those before it have logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.process.log()).unwrap()
    }

    /// Asks it to end.
    pub(crate) async fn stop(self) {
        let status = self.process.stop(PATIENCE).await.unwrap();
        assert!(status.success(), "{status}");
    }

    /// Asks it to end, and does not wait for that.
    pub(crate) fn terminate(&self) {
        self.process.signal(Signal::TERM).unwrap();
    }

    /// Kills it as by `kill -9`.
    pub(crate) async fn kill(mut self) {
        self.process.signal(Signal::KILL).unwrap();
        self.killed().await.unwrap();
    }

    /// Waits for a kill that is under way.
    pub(crate) async fn killed(&mut self) -> Result<()> {
        let status = self.process.wait(PATIENCE).await?;
        if status.signal() != Some(9) {
            bail!("it ended with {status}:\n{}", self.process.tail());
        }
        Ok(())
    }

    /// How many threads it has.
    pub(crate) fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap().count()
    }

    pub(crate) fn tail(&self) -> String {
        self.process.tail()
    }
}

impl Deref for Running {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}
