//! What runs on the node: a driver, its registrar and its sidecars.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use wharf_driver::inspect::Row;
use wharf_testkit::cluster::Cluster;
use wharf_testkit::process::{self, Process};

use crate::rig::{ACCOUNT, NAMESPACE, PATIENCE};

pub(crate) const WHARF: &str = env!("CARGO_BIN_EXE_wharf");

/// A driver that the kubelet knows.
pub(crate) struct Driver {
    name: String,
    socket: PathBuf,
    pool: PathBuf,
    /// Held, not used.
    _processes: [Process; 2],
}

impl Driver {
    /// Starts a driver with a pool of `size` and waits until the kubelet has registered it.
    pub(crate) async fn start(
        cluster: &Cluster,
        name: &str,
        size: &str,
        more: &[&str],
    ) -> Result<Self> {
        let plugin = cluster.kubelet_root().join("plugins").join(name);
        std::fs::create_dir_all(&plugin)?;
        let socket = plugin.join("csi.sock");
        let pool = cluster.folder().join(name);
        let mut command = Command::new(WHARF);
        command.arg("driver").arg("--endpoint").arg(format!("unix://{}", socket.display()));
        command.args(["--driver-name", name, "--node", cluster.node(), "--pool-image", size]);
        command.arg("--state-dir").arg(cluster.folder().join("driver-state"));
        command.arg("--pool").arg(&pool).arg("--kubelet-root").arg(cluster.kubelet_root());
        let driver =
            Process::start(&format!("driver-{name}"), command.args(more), cluster.folder())?;

        let mut command = Command::new(WHARF);
        command.arg("registrar").arg(flag("csi-address", &socket));
        command.arg(flag("kubelet-registration-path", &socket));
        command.arg(flag("plugin-registration-path", &cluster.plugins_registry()));
        let mut registrar =
            Process::start(&format!("registrar-{name}"), &command, cluster.folder())?;
        let registered = |line: &str| line.contains("driver is registered").then_some(());
        registrar.line(PATIENCE, "the kubelet to register the driver", registered).await?;
        Ok(Self { name: name.to_owned(), socket, pool, _processes: [driver, registrar] })
    }

    /// Its sidecars in one process, with the rights of the manifests and no others.
    pub(crate) async fn sidecars(
        &self,
        cluster: &Cluster,
        controllers: &[&str],
        more: &[&str],
    ) -> Result<Process> {
        let account = cluster.account(NAMESPACE, ACCOUNT).await?;
        let mut command = Command::new(WHARF);
        command.arg("sidecars").arg(flag("kubeconfig", &account));
        command.arg(flag("csi-address", &self.socket));
        command.arg(format!("--controllers={}", controllers.join(",")));
        command.args(["--timeout=1m", "--provisioner-enable-capacity"]);
        command.arg("--provisioner-capacity-ownerref-level=-1").args(more);
        command.env("NAMESPACE", NAMESPACE).env("NODE_NAME", cluster.node());
        Process::start(&format!("sidecars-{}", self.name), &command, cluster.folder())
    }

    /// The folder with the images.
    pub(crate) fn images(&self) -> PathBuf {
        wharf_driver::pool_image::folder(&self.pool)
    }

    /// The images of volumes and snapshots, and what else is where they are made.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let folders = ["volumes", "snapshots", "partial", "quarantine"];
        let folders = folders.map(|name| self.images().join(name));
        let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    }

    /// What the pool holds, as its own `ls` tells it.
    pub(crate) async fn rows(&self) -> Result<Vec<Row>> {
        let mut command = Command::new(WHARF);
        command.args(["driver", "pool", "ls", "--output", "json", "--pool"]).arg(&self.pool);
        Ok(serde_json::from_str(&process::run(&command, PATIENCE).await?)?)
    }

    /// A call to the driver by hand.
    pub(crate) async fn csi(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(WHARF);
        command.arg("csi").args(args);
        command.arg("--endpoint").arg(format!("unix://{}", self.socket.display()));
        process::run(&command, PATIENCE).await
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
