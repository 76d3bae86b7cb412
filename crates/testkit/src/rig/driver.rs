//! `wharf driver` on the node of a cluster, with its registrar and its sidecars.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{ACCOUNT, NAMESPACE, PATIENCE};
use crate::{
    cluster::Cluster,
    process::{self, Process},
};

/// A driver, registered with the kubelet.
#[derive(Debug)]
pub struct Driver {
    wharf: PathBuf,
    name: String,
    socket: PathBuf,
    pool: PathBuf,
    /// Driver and registrar; dropping them kills them.
    _processes: [Process; 2],
}

impl Driver {
    /// Starts a driver with a pool of `size` and waits until the kubelet has registered it.
    pub async fn start(
        wharf: &Path,
        cluster: &Cluster,
        name: &str,
        size: &str,
        more: &[&str],
    ) -> Result<Self> {
        let plugin = cluster.kubelet_root().join("plugins").join(name);
        std::fs::create_dir_all(&plugin)?;
        let socket = plugin.join("csi.sock");
        let pool = cluster.folder().join(name);
        let mut command = Command::new(wharf);
        command.arg("driver").arg("--endpoint").arg(format!("unix://{}", socket.display()));
        command.args(["--driver-name", name, "--node", cluster.node(), "--pool-image", size]);
        command.arg("--state-dir").arg(cluster.folder().join("driver-state"));
        command.arg("--pool").arg(&pool).arg("--kubelet-root").arg(cluster.kubelet_root());
        let driver =
            Process::start(&format!("driver-{name}"), command.args(more), cluster.folder())?;

        let mut command = Command::new(wharf);
        command.arg("registrar").arg(flag("csi-address", &socket));
        command.arg(flag("kubelet-registration-path", &socket));
        command.arg(flag("plugin-registration-path", &cluster.plugins_registry()));
        let mut registrar =
            Process::start(&format!("registrar-{name}"), &command, cluster.folder())?;
        let registered = |line: &str| line.contains("driver is registered").then_some(());
        registrar.line(PATIENCE, "the kubelet to register the driver", registered).await?;
        Ok(Self {
            wharf: wharf.to_owned(),
            name: name.to_owned(),
            socket,
            pool,
            _processes: [driver, registrar],
        })
    }

    /// Starts the driver's sidecars in one process, with exactly the roles of the manifests.
    pub async fn sidecars(
        &self,
        cluster: &Cluster,
        controllers: &[&str],
        more: &[&str],
    ) -> Result<Process> {
        let account = cluster.account(NAMESPACE, ACCOUNT).await?;
        let mut command = Command::new(&self.wharf);
        command.arg("sidecars").arg(flag("kubeconfig", &account));
        command.arg(flag("csi-address", &self.socket));
        command.arg(format!("--controllers={}", controllers.join(",")));
        command.args(["--timeout=1m", "--provisioner-enable-capacity"]);
        command.arg("--provisioner-capacity-ownerref-level=-1").args(more);
        command.env("NAMESPACE", NAMESPACE).env("NODE_NAME", cluster.node());
        Process::start(&format!("sidecars-{}", self.name), &command, cluster.folder())
    }

    /// The pool's folder.
    #[must_use]
    pub fn pool(&self) -> &Path {
        &self.pool
    }

    /// Calls the driver by hand, with `wharf csi`.
    pub async fn csi(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.wharf);
        command.arg("csi").args(args);
        command.arg("--endpoint").arg(format!("unix://{}", self.socket.display()));
        process::run(&command, PATIENCE).await
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
