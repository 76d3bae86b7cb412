//! etcd: the store of the API, its backups and how it is restored from them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::TcpStream;

use crate::peers;
use crate::process::{self, Process};

const NAME: &str = "etcd";
const START: Duration = Duration::from_secs(60);

/// The versions of what is written after a backup was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// None that there was before, as Kubernetes asks for, and none from before can be watched from.
    New,
    /// Those that follow the backup, which others have had before.
    Again,
}

/// A server, or one that is stopped and can be started again.
#[derive(Debug)]
pub(super) struct Etcd {
    process: Option<Process>,
    binary: PathBuf,
    folder: PathBuf,
    client: u16,
    peer: u16,
}

impl Etcd {
    /// A server that listens at the two ports and keeps its data in `folder`. It is not started.
    pub(super) fn new(binary: &Path, folder: &Path, [client, peer]: [u16; 2]) -> Self {
        Self { process: None, binary: binary.to_owned(), folder: folder.to_owned(), client, peer }
    }

    /// Where clients find it.
    pub(super) fn url(&self) -> String {
        url(self.client)
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Starts the program; [`Etcd::listening`] waits for it.
    pub(super) fn start(&mut self) -> Result<()> {
        let (client, peer) = (url(self.client), url(self.peer));
        let mut command = Command::new(&self.binary);
        command
            .args(["--unsafe-no-fsync", "--log-level=warn"])
            .arg(format!("--data-dir={}", self.data().display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .args(self.membership());
        self.process = Some(Process::start(NAME, &command, &self.folder)?);
        Ok(())
    }

    pub(super) async fn listening(&mut self) -> Result<()> {
        let process = self.process.as_mut().context("etcd is stopped")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.client));
        let listening = || async move { TcpStream::connect(address).await.ok() };
        process.ready(START, "etcd to listen", listening).await.map(drop)
    }

    pub(super) async fn stop(&mut self, deadline: Duration) -> Result<()> {
        match self.process.take() {
            Some(process) => process.stop(deadline).await.map(drop),
            None => Ok(()),
        }
    }

    /// Writes what it holds now to a new file, as an operator would.
    pub(super) async fn back_up(&self, file: &Path) -> Result<()> {
        let mut command = tool("etcdctl")?;
        command.arg(format!("--endpoints={}", self.url())).args(["snapshot", "save"]).arg(file);
        process::run(&command, START).await.map(drop)
    }

    /// Puts the data of a backup in the place of its own. It has to be stopped.
    pub(super) async fn restore(&self, backup: &Path, versions: Versions) -> Result<()> {
        ensure!(self.process.is_none(), "an etcd that runs cannot be restored");
        std::fs::remove_dir_all(self.data())?;
        let mut command = tool("etcdutl")?;
        command
            .args(["snapshot", "restore"])
            .arg(backup)
            .arg(format!("--data-dir={}", self.data().display()))
            .args(self.membership());
        if versions == Versions::New {
            command.args(["--bump-revision=1000000000", "--mark-compacted"]);
        }
        process::run(&command, START).await.map(drop)
    }

    /// A cluster of one.
    fn membership(&self) -> [String; 3] {
        let peer = url(self.peer);
        [
            format!("--name={NAME}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={NAME}={peer}"),
        ]
    }

    fn data(&self) -> PathBuf {
        self.folder.join("etcd")
    }
}

fn tool(name: &str) -> Result<Command> {
    peers::binary(name).map(Command::new).with_context(|| format!("{name} is built with etcd"))
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}
