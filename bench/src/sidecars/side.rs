//! The measured programs: our sidecars, the Go sidecars, or a bare client.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};
use wharf_testkit::{
    peers::{self, Peer},
    process::Process,
};

use super::operation::Operation;
use crate::Arguments;

/// A measured program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    /// Go with its default flags.
    Go,
    /// Go with a request limit that is never reached.
    FastGo,
    Bare,
}

/// The Go programs, by their names in images.
pub(super) const GO: [&str; 5] =
    ["csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "snapshot-controller"];

/// The flags of [`Side::FastGo`].
const FAST: [&str; 2] = ["--kube-api-qps=1000", "--kube-api-burst=2000"];

impl Side {
    pub(super) const ALL: [Self; 4] = [Self::Ours, Self::Go, Self::FastGo, Self::Bare];

    /// The name of its driver, and of the driver's classes.
    pub(super) fn driver(self) -> &'static str {
        match self {
            Self::Ours => "ours.csi.bench.wharf.dev",
            Self::Go => "go.csi.bench.wharf.dev",
            Self::FastGo => "fast-go.csi.bench.wharf.dev",
            Self::Bare => "bare.csi.bench.wharf.dev",
        }
    }

    /// A prefix for names of objects.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Go => "go",
            Self::FastGo => "fast-go",
            Self::Bare => "bare",
        }
    }
}

/// The programs to measure.
pub(super) struct Programs {
    pub(super) wharf: PathBuf,
    go: Vec<(&'static str, PathBuf)>,
}

/// The environment of sidecars.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) kubeconfig: PathBuf,
    pub(super) socket: PathBuf,
    /// The folder for logs.
    pub(super) folder: PathBuf,
}

impl Programs {
    pub(super) fn find(arguments: &Arguments) -> Result<Self> {
        let wharf = arguments.binary.clone();
        ensure!(wharf.is_file(), "--binary {}: there is no such file", wharf.display());
        let mut go = Vec::new();
        for name in GO {
            if let Some(path) = opponent(arguments.peers.as_deref(), name)? {
                go.push((name, path));
            }
        }
        Ok(Self { wharf, go })
    }

    /// The names of the available Go programs.
    pub(super) fn go(&self) -> Vec<&'static str> {
        self.go.iter().map(|(name, _)| *name).collect()
    }

    /// The first of the operation's Go programs that is missing.
    pub(super) fn missing(&self, operation: Operation) -> Option<&'static str> {
        let mut programs = operation.programs().iter().copied();
        programs.find(|name| !self.go().contains(name))
    }

    /// Starts all of our controllers in one process. `*` leaves the snapshot-controller out.
    pub(super) fn start_ours(&self, around: &Surroundings, flags: &[&str]) -> Result<Process> {
        let mut command = Command::new(&self.wharf);
        command.args(["sidecars", "--controllers=*,snapshot-controller"]);
        command.args(around.flags(true)).args(flags);
        Process::start("wharf-sidecars", &command, &around.folder)
    }

    /// Starts the Go program `name`.
    pub(super) fn start_go(
        &self,
        name: &str,
        around: &Surroundings,
        flags: &[&str],
    ) -> Result<Process> {
        let path = self.go.iter().find(|(own, _)| *own == name).map(|(_, path)| path);
        let mut command = Command::new(path.ok_or_else(|| anyhow::anyhow!("there is no {name}"))?);
        command.args(around.flags(name != "snapshot-controller")).args(flags);
        Process::start(name, &command, &around.folder)
    }

    /// Starts the programs of `side` for the operation.
    pub(super) fn start(
        &self,
        side: Side,
        operation: Operation,
        around: &Surroundings,
    ) -> Result<Vec<Process>> {
        let flags: &[&str] = match side {
            Side::Bare => return Ok(Vec::new()),
            Side::Ours => return Ok(vec![self.start_ours(around, &[])?]),
            Side::Go => &[],
            Side::FastGo => &FAST,
        };
        operation.programs().iter().map(|name| self.start_go(name, around, flags)).collect()
    }
}

impl Surroundings {
    pub(super) fn flags(&self, driver: bool) -> Vec<String> {
        let mut flags = vec![format!("--kubeconfig={}", self.kubeconfig.display())];
        if driver {
            flags.push(format!("--csi-address={}", self.socket.display()));
        }
        flags
    }
}

/// The program in the given folder, or among the built peers.
fn opponent(given: Option<&Path>, name: &str) -> Result<Option<PathBuf>> {
    if let Some(path) = given.map(|folder| folder.join(name)).filter(|path| path.is_file()) {
        return Ok(Some(path));
    }
    if peers::EXTERNAL.contains(&name) || std::env::var_os(peers::SKIP_PEERS).is_some() {
        return Ok(None);
    }
    for peer in Peer::all()? {
        let built = peer.built()?.map(|folder| folder.join("bin").join(name));
        if let Some(path) = built.filter(|path| path.is_file()) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
