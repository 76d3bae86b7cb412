//! Shared by the tests of the binary: a folder with processes in it.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use tempfile::TempDir;
use wharf_testkit::process::Process;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const WHARF: &str = env!("CARGO_BIN_EXE_wharf");
pub(crate) const DRIVER: &str = "demo.csi.wharf.dev";

/// A folder with a driver, a registry and whatever else a test starts in it.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("registry")).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The binary under the name of a Go program.
    pub(crate) fn called(&self, name: &str) -> PathBuf {
        let link = self.path(name);
        if !link.exists() {
            symlink(WHARF, &link).unwrap();
        }
        link
    }

    pub(crate) fn registration_socket(&self) -> PathBuf {
        self.path("registry").join(format!("{DRIVER}-reg.sock"))
    }

    /// Starts `wharf`; a second process of one name gets a log of its own.
    pub(crate) fn start(&self, name: &str, args: &[&str]) -> Process {
        let number = (1..).find(|n| !self.path(&format!("{name}-{n}.log")).exists()).unwrap();
        let name = format!("{name}-{number}");
        Process::start(&name, Command::new(WHARF).args(args), self.folder.path()).unwrap()
    }

    /// The demo's CSI driver, listening.
    pub(crate) async fn driver(&self) -> Process {
        let socket = self.path("csi.sock");
        let mut driver = self.start("driver", &["demo", "--driver", socket.to_str().unwrap()]);
        driver.ready(PATIENCE, "driver socket", || exists(&socket)).await.unwrap();
        driver
    }

    pub(crate) fn registrar(&self, more: &[&str]) -> Process {
        let (csi, registry) = (self.path("csi.sock"), self.path("registry"));
        let flags = [
            format!("-csi-address={}", csi.display()),
            format!("--kubelet-registration-path={}", csi.display()),
            format!("--plugin-registration-path={}", registry.display()),
        ];
        let mut args = vec!["registrar"];
        args.extend(flags.iter().map(String::as_str));
        args.extend(more);
        self.start("registrar", &args)
    }

    /// `wharf plugins run` on the registry; ready when it says that it is.
    pub(crate) async fn manager(&self) -> (Process, String) {
        let registry = self.path("registry");
        let mut manager = self.start(
            "manager",
            &[
                "plugins",
                "run",
                "--root",
                registry.to_str().unwrap(),
                "--http-endpoint",
                "127.0.0.1:0",
            ],
        );
        let address = manager
            .line(PATIENCE, "admin address", |line| {
                let (_, rest) = line.split_once("address=\"")?;
                Some(rest.split('"').next()?.to_owned())
            })
            .await
            .unwrap();
        manager.ready(PATIENCE, "readyz", || ok(format!("http://{address}/readyz"))).await.unwrap();
        (manager, address)
    }

    pub(crate) fn ls(&self, more: &[&str]) -> String {
        let registry = self.path("registry");
        let mut args = vec!["plugins", "ls", "--root", registry.to_str().unwrap()];
        args.extend(more);
        let output = wharf(&args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(crate) fn wharf(args: &[&str]) -> Output {
    Command::new(WHARF).args(args).output().unwrap()
}

/// Runs the binary under the name of a Go program to its end. Gives what it said on standard error,
/// too.
pub(crate) fn run_as(name: &str, args: &[&str], variables: &[(&str, &str)]) -> (Output, String) {
    let bench = Bench::new();
    let mut command = Command::new(bench.called(name));
    for name in ["NODE_NAME", "NAMESPACE", "POD_NAME", "KUBECONFIG"] {
        command.env_remove(name);
    }
    let output = command.args(args).envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

pub(crate) async fn exists(path: &Path) -> Option<()> {
    path.exists().then_some(())
}

pub(crate) fn get(url: &str) -> (u16, String) {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "10", "--write-out", "\n%{http_code}", url])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.parse().unwrap(), body.to_owned())
}

pub(crate) async fn ok(url: String) -> Option<()> {
    (get(&url).0 == 200).then_some(())
}

/// A port that was free a moment ago, for flags that take no port 0.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
