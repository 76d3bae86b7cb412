//! A folder with the sockets of a runtime, of hook servers and of proxies.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use tempfile::TempDir;
use wharf_testkit::{
    koord::{self, Koord},
    process::Process,
};

use super::client::Client;

/// The measured value of `--busy-poll`.
pub(super) const BUSY_POLL: &str = "400us";

/// Dropping it ends the processes that it started.
pub(super) struct Rig {
    binary: PathBuf,
    folder: TempDir,
}

/// A process with a socket.
pub(super) struct Served {
    pub(super) process: Process,
    pub(super) socket: PathBuf,
}

impl Served {
    /// A connection, made once the process listens.
    pub(super) async fn client(&self) -> Result<Client> {
        let dialled = Client::dial(&self.socket).await;
        dialled.with_context(|| self.process.tail())
    }
}

impl Rig {
    /// A rig for the proxy at `binary`.
    pub(super) fn new(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("hooks"))?;
        Ok(Self { binary: binary.to_owned(), folder })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of hook servers' files.
    pub(super) fn hooks(&self) -> PathBuf {
        self.path("hooks")
    }

    /// A runtime that takes this long for updates. It listens.
    pub(super) async fn runtime(&self, update_milliseconds: u64) -> Result<Served> {
        let update = update_milliseconds.to_string();
        self.part("runtime", &["--update-milliseconds", &update]).await
    }

    /// containerd, without containers and images. It listens.
    pub(super) async fn containerd(&self) -> Result<Served> {
        let socket = self.path("runtime.sock");
        let (root, state) = (self.path("containerd"), self.path("containerd-state"));
        let config = self.path("containerd.toml");
        let text = format!(
            "version = 2\nroot = {root:?}\nstate = {state:?}\n[grpc]\naddress = {socket:?}\n"
        );
        std::fs::write(&config, text)?;
        let mut command = Command::new("containerd");
        command.arg("--config").arg(&config);
        let served = self.listening("containerd", &command, socket).await;
        served.context("the package containerd has to be installed, and it needs root")
    }

    /// A runtime in Go that only has long lists. It listens.
    pub(super) async fn lists(&self, peer: &Path) -> Result<Served> {
        let socket = self.path("runtime.sock");
        let mut command = Command::new(peer);
        command.arg("-socket").arg(&socket).arg("serve");
        self.listening("lists", &command, socket).await
    }

    /// A relay to the runtime. It listens.
    pub(super) async fn relay(&self) -> Result<Served> {
        let runtime = self.path("runtime.sock");
        self.part("relay", &["--to", &runtime.display().to_string()]).await
    }

    /// A client that attacks what listens at `socket`.
    pub(super) fn attacker(&self, name: &str, socket: &Path, attack: &str) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["proxy-part", "attacker", "--attack", attack, "--socket"]).arg(socket);
        Process::start(name, &command, self.folder.path())
    }

    /// A hook server that changes nothing. It listens.
    pub(super) async fn hook_server(&self) -> Result<Served> {
        self.part("hooks", &[]).await
    }

    /// Our proxy to the runtime. The name of each start names its log.
    pub(super) fn proxy(&self, name: &str) -> Result<Served> {
        self.proxy_with(name, &[])
    }

    /// The same with `--busy-poll`.
    pub(super) fn busy_proxy(&self, name: &str) -> Result<Served> {
        self.proxy_with(name, &["--busy-poll", BUSY_POLL])
    }

    fn proxy_with(&self, name: &str, flags: &[&str]) -> Result<Served> {
        let socket = self.path("proxy.sock");
        let mut command = Command::new(&self.binary);
        command.arg("proxy").arg("--listen").arg(&socket);
        command.arg("--runtime").arg(self.path("runtime.sock"));
        command.arg("--hooks-dir").arg(self.hooks());
        command.arg("--state-dir").arg(self.path("state")).args(flags);
        let process = Process::start(name, &command, self.folder.path())?;
        Ok(Served { process, socket })
    }

    /// koord-runtime-proxy to the runtime, with the hook servers that exist now. `None` if it
    /// cannot run here.
    pub(super) async fn koord(&self) -> Result<Option<Koord>> {
        koord::runtime_proxy(self.folder.path(), &self.path("runtime.sock"), &self.hooks()).await
    }

    async fn part(&self, name: &str, flags: &[&str]) -> Result<Served> {
        let socket = self.path(&format!("{name}.sock"));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["proxy-part", name, "--socket"]).arg(&socket).args(flags);
        self.listening(name, &command, socket).await
    }

    async fn listening(&self, name: &str, command: &Command, socket: PathBuf) -> Result<Served> {
        let process = Process::start(name, command, self.folder.path())?;
        let served = Served { process, socket };
        drop(served.client().await?);
        Ok(served)
    }
}
