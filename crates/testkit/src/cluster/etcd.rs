//! etcd, its backups and their restoration.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::net::TcpStream;

use crate::{
    peers,
    process::{self, Process},
};

const NAME: &str = "etcd";
const START: Duration = Duration::from_secs(60);

/// Revisions of objects that are written after a backup was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Higher than any before, as Kubernetes requires; watches cannot resume from earlier ones.
    New,
    /// Those that follow the backup, which were used before for other objects.
    Again,
}

/// A server, running or stopped.
#[derive(Debug)]
pub(super) struct Etcd {
    process: Option<Process>,
    binary: PathBuf,
    folder: PathBuf,
    client: u16,
    peer: u16,
}

impl Etcd {
    /// A server that listens on the two ports and keeps its data in `folder`. It is not started.
    pub(super) fn new(binary: &Path, folder: &Path, [client, peer]: [u16; 2]) -> Self {
        Self { process: None, binary: binary.to_owned(), folder: folder.to_owned(), client, peer }
    }

    /// The URL for clients.
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

    /// Writes its data to a new file, like an operator would.
    pub(super) async fn back_up(&self, file: &Path) -> Result<()> {
        let mut command = tool("etcdctl")?;
        command.arg(format!("--endpoints={}", self.url())).args(["snapshot", "save"]).arg(file);
        process::run(&command, START).await.map(drop)
    }

    /// Replaces the data by that of a backup. The server must be stopped.
    pub(super) async fn restore(&self, backup: &Path, versions: Versions) -> Result<()> {
        ensure!(self.process.is_none(), "stop etcd before restoring it");
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

    /// The flags of a cluster with one member.
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
