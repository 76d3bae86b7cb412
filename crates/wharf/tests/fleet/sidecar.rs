//! One sidecar: a process of ours, or of the Go program that it stands in for.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use wharf_testkit::cluster::Cluster;
use wharf_testkit::peers;
use wharf_testkit::process::Process;

use crate::api::PATIENCE;
use crate::role;

const WHARF: &str = env!("CARGO_BIN_EXE_wharf");
/// The user of a process that holds all controllers.
pub(crate) const JOINT: &str = "sidecars";
/// Go's own pace would take most of a test's time.
const PACE: [&str; 3] =
    ["--retry-interval-start=100ms", "--kube-api-qps=100", "--kube-api-burst=200"];
/// Short enough for a test, and long enough for a busy machine.
const ELECTION: [&str; 5] = [
    "--leader-election",
    "--leader-election-namespace=default",
    "--leader-election-lease-duration=4s",
    "--leader-election-renew-deadline=3s",
    "--leader-election-retry-period=500ms",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Provisioner,
    Attacher,
    Resizer,
    Snapshotter,
    SnapshotController,
}

/// Who made a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    Ours,
    Go,
}

/// How a sidecar is started.
pub(crate) struct Order<'a> {
    pub(crate) kind: Kind,
    pub(crate) make: Make,
    pub(crate) cluster: &'a Cluster,
    /// Where links and logs go.
    pub(crate) folder: &'a Path,
    pub(crate) socket: PathBuf,
    /// The host's name, which is its identity in an election; without one there is none.
    pub(crate) host: Option<&'a str>,
}

/// A running sidecar. Where its test fails, it shows what it said.
pub(crate) struct Sidecar {
    name: String,
    command: Command,
    folder: PathBuf,
    process: Option<Process>,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Provisioner,
        Self::Attacher,
        Self::Resizer,
        Self::Snapshotter,
        Self::SnapshotController,
    ];

    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Provisioner => "csi-provisioner",
            Self::Attacher => "csi-attacher",
            Self::Resizer => "csi-resizer",
            Self::Snapshotter => "csi-snapshotter",
            Self::SnapshotController => "snapshot-controller",
        }
    }

    /// The user that has its roles.
    pub(crate) fn user(self) -> &'static str {
        let program = self.program();
        program.strip_prefix("csi-").unwrap_or(program)
    }

    /// The name of its Lease, for a driver whose name has no dots.
    pub(crate) fn lease(self, driver: &str) -> String {
        match self {
            Self::Provisioner => driver.to_owned(),
            Self::Attacher => format!("external-attacher-leader-{driver}"),
            Self::Resizer => format!("external-resizer-{driver}"),
            Self::Snapshotter => format!("external-snapshotter-leader-{driver}"),
            Self::SnapshotController => "snapshot-controller-leader".to_owned(),
        }
    }
}

impl Make {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Ours => Self::Go,
            Self::Go => Self::Ours,
        }
    }
}

impl Order<'_> {
    /// Starts it; `None` where there is no such program.
    pub(crate) fn start(&self) -> Option<Sidecar> {
        let mut command = self.hosted(&self.program()?);
        command.arg("--kubeconfig").arg(match self.make {
            Make::Ours => role::kubeconfig(self.cluster, self.kind.user(), self.folder),
            // deploy/ has roles for what ours do.
            Make::Go => self.cluster.kubeconfig().to_owned(),
        });
        command.args(PACE);
        if self.kind != Kind::SnapshotController {
            command.arg("--csi-address").arg(&self.socket);
        }
        if [Kind::Snapshotter, Kind::SnapshotController].contains(&self.kind) {
            // The kinds of group snapshots are not installed.
            command.arg("--feature-gates=CSIVolumeGroupSnapshot=false");
        }
        let name = format!("{:?}-{}", self.make, self.kind.program());
        Some(Sidecar::start(name, command, self.folder))
    }

    fn program(&self) -> Option<PathBuf> {
        match self.make {
            Make::Go => peers::binary(self.kind.program()),
            Make::Ours => Some(link(self.folder, self.kind.program())),
        }
    }

    /// The program on a host of its own, if it is to stand for election.
    fn hosted(&self, program: &Path) -> Command {
        let Some(host) = self.host else { return Command::new(program) };
        let mut command = Command::new("unshare");
        command.args(["--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", host]);
        command.arg(program).args(ELECTION);
        command
    }
}

impl Sidecar {
    /// All controllers in one process.
    pub(crate) fn joint(cluster: &Cluster, folder: &Path, socket: &Path) -> Self {
        let mut command = Command::new(WHARF);
        command.args(["sidecars", "--controllers=*"]).args(PACE);
        command.arg("--kubeconfig").arg(role::kubeconfig(cluster, JOINT, folder));
        command.arg("--csi-address").arg(socket);
        command.arg("--snapshotter-feature-gates=CSIVolumeGroupSnapshot=false");
        command.arg("--snapshot-controller-feature-gates=CSIVolumeGroupSnapshot=false");
        Self::start("sidecars".to_owned(), command, folder)
    }

    /// Kills it as by kill -9.
    pub(crate) async fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.signal(Signal::KILL).unwrap();
        let status = process.wait(PATIENCE).await.unwrap();
        assert_eq!(status.signal(), Some(9), "{} ended by itself: {status}", self.name);
    }

    /// Asks it to end. Programs that do not listen for that are ended by the signal.
    pub(crate) async fn stop(&mut self) {
        let status = self.process.take().unwrap().stop(PATIENCE).await.unwrap();
        assert!(status.success() || status.signal() == Some(15), "{}: {status}", self.name);
    }

    /// Starts it again, once it has ended.
    pub(crate) fn start_again(&mut self) {
        let started = Process::start(&self.name, &self.command, &self.folder).unwrap();
        assert!(self.process.replace(started).is_none(), "{} was running", self.name);
    }

    fn start(name: String, command: Command, folder: &Path) -> Self {
        let mut sidecar = Self { name, command, folder: folder.to_owned(), process: None };
        sidecar.start_again();
        sidecar
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Some(process) = self.process.as_ref().filter(|_| std::thread::panicking()) {
            eprintln!("-- {}:\n{}", self.name, process.tail());
        }
    }
}

/// The binary under the name of the Go program.
fn link(folder: &Path, program: &str) -> PathBuf {
    let link = folder.join(program);
    if !link.exists() {
        symlink(WHARF, &link).unwrap();
    }
    link
}
