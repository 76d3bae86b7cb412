//! One sidecar: our process, or the Go program that it replaces.

use std::{
    net::SocketAddr,
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use wharf_testkit::{cluster::Cluster, peers, process::Process};

use crate::{
    api::PATIENCE,
    program::{Make, Program},
};

const WHARF: &str = env!("CARGO_BIN_EXE_wharf");
/// Go's own pace would take most of a test's time.
const PACE: [&str; 4] = [
    "--retry-interval-start=100ms",
    "--retry-interval-max=1s",
    "--kube-api-qps=100",
    "--kube-api-burst=200",
];
/// Of an election, in seconds.
pub(crate) const LEASE: f64 = 4.0;
/// Short enough for a test, and long enough for a busy machine.
const ELECTION: [&str; 5] = [
    "--leader-election",
    "--leader-election-namespace=default",
    "--leader-election-lease-duration=4s",
    "--leader-election-renew-deadline=3s",
    "--leader-election-retry-period=500ms",
];

/// How a sidecar is started.
pub(crate) struct Order<'a> {
    pub(crate) program: Program,
    /// Whom it acts as.
    pub(crate) user: &'static str,
    pub(crate) cluster: &'a Cluster,
    /// Where links, kubeconfigs and logs go.
    pub(crate) folder: &'a Path,
    pub(crate) socket: PathBuf,
    /// The host's name, with which its identity in an election begins; without one there is none.
    pub(crate) host: Option<&'a str>,
    /// Where it finds the API server, if not where that is.
    pub(crate) server: Option<SocketAddr>,
    /// The node that it serves, if it is not there for the whole cluster.
    pub(crate) node: Option<&'a str>,
    /// Flags besides.
    pub(crate) more: &'a [&'a str],
}

/// A running sidecar. Where its test fails, it shows what it said.
pub(crate) struct Sidecar {
    name: String,
    command: Command,
    folder: PathBuf,
    process: Option<Process>,
}

impl Order<'_> {
    /// Starts it; `None` where there is no such program.
    pub(crate) fn start(&self) -> Option<Sidecar> {
        let name = match self.host.or(self.node) {
            Some(host) => format!("{}-{host}", self.program.name()),
            None => self.program.name(),
        };
        let mut command = self.command()?;
        command.args(PACE).args(self.program.gates()).args(self.more);
        command.arg("--kubeconfig").arg(self.kubeconfig(&name));
        if self.program.has_driver() {
            command.arg("--csi-address").arg(&self.socket);
        }
        if self.host.is_some() {
            command.args(ELECTION);
        }
        Some(Sidecar::start(name, command, self.folder))
    }

    /// The program, on a host of its own if it is to stand for election.
    fn command(&self) -> Option<Command> {
        let (path, arguments): (_, &[&str]) = match self.program {
            Program::One(kind, Make::Go) => (peers::binary(kind.program())?, &[]),
            Program::One(kind, Make::Ours) => (link(self.folder, kind.program()), &[]),
            Program::Combined => {
                (WHARF.into(), &["sidecars", "--controllers=*,snapshot-controller"])
            }
            Program::OfDriver => (WHARF.into(), &["sidecars"]),
            Program::OnNode => (
                WHARF.into(),
                &["sidecars", "--controllers=provisioner,resizer,snapshotter", "--node-deployment"],
            ),
        };
        let mut command = match self.host {
            None => Command::new(path),
            Some(host) => {
                let mut command = Command::new("unshare");
                command.args(["--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", host]);
                command.arg(path);
                command
            }
        };
        command.args(arguments).envs(self.node.map(|node| ("NODE_NAME", node)));
        Some(command)
    }

    /// Writes the kubeconfig of an administrator, who acts as the user and has then that user's
    /// rights.
    pub(crate) fn kubeconfig(&self, name: &str) -> PathBuf {
        let text = std::fs::read_to_string(self.cluster.kubeconfig()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["users"][0]["user"]["as"] = json!(self.user);
        if let Some(server) = self.server {
            config["clusters"][0]["cluster"]["server"] = json!(format!("https://{server}"));
        }
        let path = self.folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }
}

impl Sidecar {
    /// Kills it as by kill -9.
    pub(crate) async fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.signal(Signal::KILL).unwrap();
        let status = process.wait(PATIENCE).await.unwrap();
        assert_eq!(status.signal(), Some(9), "{} ended by itself: {status}", self.name);
    }

    /// Keeps it from running until [`Sidecar::thaw`].
    pub(crate) fn freeze(&self) {
        self.process.as_ref().unwrap().signal(Signal::STOP).unwrap();
    }

    pub(crate) fn thaw(&self) {
        self.process.as_ref().unwrap().signal(Signal::CONT).unwrap();
    }

    /// Asks it to end. Programs that do not listen for that are ended by the signal.
    pub(crate) async fn stop(&mut self) {
        let status = self.process.take().unwrap().stop(PATIENCE).await.unwrap();
        assert!(status.success() || status.signal() == Some(15), "{}: {status}", self.name);
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) {
        let status = self.process.take().unwrap().wait(PATIENCE).await.unwrap();
        assert!(!status.success(), "{}: {status}", self.name);
    }

    /// Waits until it has logged a text so many times.
    pub(crate) async fn said(&mut self, text: &str, times: usize) {
        let log = self.process.as_ref().unwrap().log().to_owned();
        let what = format!("{text:?} in the log {times} times");
        self.until(&what, || std::fs::read_to_string(&log).unwrap().matches(text).count() >= times)
            .await;
    }

    /// Waits until a condition holds; its end before that fails the test.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn() -> bool) {
        let process = self.process.as_mut().unwrap();
        let seen = process.ready(PATIENCE, what, || std::future::ready(holds().then_some(())));
        seen.await.unwrap();
    }

    /// All that it has logged, also before it was started again.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join(format!("{}.log", self.name))).unwrap()
    }

    /// How often lines of its log have all of these texts.
    pub(crate) fn lines(&self, texts: &[&str]) -> usize {
        let log = self.log();
        log.lines().filter(|line| texts.iter().all(|text| line.contains(text))).count()
    }

    /// When it first logged a text, in seconds of the day.
    pub(crate) fn logged_at(&self, text: &str) -> f64 {
        let log = self.log();
        let line = log.lines().find(|line| line.contains(text)).unwrap();
        // klog's header: I1119 05:08:49.123456
        let time = line.split(' ').nth(1).unwrap();
        time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
    }

    /// Starts it again, once it has ended.
    pub(crate) fn start_again(&mut self) {
        let started = Process::start(&self.name, &self.command, &self.folder).unwrap();
        assert!(self.process.replace(started).is_none(), "{} was running", self.name);
    }

    /// Starts a program under a name for its log.
    pub(crate) fn start(name: String, command: Command, folder: &Path) -> Self {
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
pub(crate) fn link(folder: &Path, program: &str) -> PathBuf {
    let link = folder.join(program);
    if !link.exists() {
        symlink(WHARF, &link).unwrap();
    }
    link
}
