//! A cluster of one node with wharf: the driver, its registrar and its sidecars, deployed from
//! deploy/, and optionally the runtime proxy between kubelet and containerd.

mod driver;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Result;
use serde_json::{Value, json};

pub use self::driver::Driver;
use crate::{
    cluster::{Builder, Cluster},
    deploy::{self, CONTROLLERS, Subject, manifest},
    process::{self, Process},
};

/// The deadline of each step, with a margin for other tests that run at the same time.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The driver's name, as in the manifests.
pub const DRIVER: &str = "local.csi.wharf";

/// The namespace of the sidecars, and their service account.
const NAMESPACE: &str = "wharf";
const ACCOUNT: &str = "wharf-sidecars";

/// A running rig. Dropping it kills its processes, and the cluster's guard removes the rest.
#[derive(Debug)]
pub struct Rig {
    // Fields are dropped in this order: the sidecars before the driver, and the cluster last.
    _sidecars: Process,
    /// The driver, registered with the kubelet.
    pub driver: Driver,
    _proxy: Option<Process>,
    /// The cluster.
    pub cluster: Cluster,
    wharf: PathBuf,
}

/// The parts of a rig that differ between its users.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The binary under test.
    pub wharf: &'a Path,
    /// The size of the driver's pool, such as `4Gi`.
    pub pool: &'a str,
    /// Whether the kubelet reaches containerd through `wharf proxy`.
    pub proxy: bool,
    /// Further flags of the sidecars.
    pub sidecars: &'a [&'a str],
    /// Further objects to create.
    pub objects: Vec<Value>,
}

impl Setup<'_> {
    /// Starts a cluster with a kubelet and deploys wharf on it. `None` if peers are skipped.
    pub async fn start(self, builder: Builder) -> Result<Option<Rig>> {
        let builder = builder.containerd(true).controllers(true);
        let Some(mut cluster) = builder.start().await? else { return Ok(None) };
        let mut runtime = cluster.runtime_socket();
        let mut proxy = None;
        if self.proxy {
            let (process, socket) = start_proxy(self.wharf, &cluster).await?;
            (proxy, runtime) = (Some(process), socket);
        }
        cluster.start_kubelet(&runtime).await?;
        run(self.wharf, &cluster, &["crds", "install"]).await?;
        deploy(&cluster, &self.objects).await?;
        let driver =
            Driver::start(self.wharf, &cluster, DRIVER, self.pool, &["--attach=true"]).await?;
        // Each controller has its Lease. The snapshot controller leaves snapshots of drivers with a
        // snapshotter on each node to those.
        let namespace = format!("--leader-election-namespace={NAMESPACE}");
        let flags = ["--leader-election", &namespace, "--enable-distributed-snapshotting"];
        let flags = [&flags[..], self.sidecars].concat();
        let mut sidecars = driver.sidecars(&cluster, &CONTROLLERS, &flags).await?;
        let led = || async { (leases(&cluster).await? == CONTROLLERS.len()).then_some(()) };
        sidecars.ready(PATIENCE, "every controller's Lease", led).await?;
        let wharf = self.wharf.to_owned();
        Ok(Some(Rig { _sidecars: sidecars, driver, _proxy: proxy, cluster, wharf }))
    }
}

impl Rig {
    /// Runs `wharf` as administrator of the cluster and returns its standard output.
    pub async fn wharf(&self, args: &[&str]) -> Result<String> {
        run(&self.wharf, &self.cluster, args).await
    }

    /// Stops everything and removes the cluster's folder, its mounts, loop devices and control
    /// groups.
    pub async fn stop(self) -> Result<()> {
        // The kubelet unmounts and unregisters while it stops, so the driver is stopped after it.
        let Self { driver, _sidecars: sidecars, _proxy: proxy, cluster, .. } = self;
        drop(sidecars);
        let stopped = cluster.stop().await;
        drop((driver, proxy));
        stopped
    }
}

/// Runs `wharf` as administrator.
async fn run(wharf: &Path, cluster: &Cluster, args: &[&str]) -> Result<String> {
    let mut command = Command::new(wharf);
    command.args(args).arg("--kubeconfig").arg(cluster.kubeconfig());
    process::run(&command, PATIENCE).await
}

/// Starts a proxy without hook servers, and returns its socket.
async fn start_proxy(wharf: &Path, cluster: &Cluster) -> Result<(Process, PathBuf)> {
    let folder = cluster.folder();
    let socket = folder.join("proxy.sock");
    let mut command = Command::new(wharf);
    command.arg("proxy").arg("--listen").arg(&socket);
    command.arg("--runtime").arg(cluster.runtime_socket());
    command.arg("--hooks-dir").arg(folder.join("hookserver.d"));
    let mut proxy = Process::start("proxy", &command, folder)?;
    let listening = || async { tokio::net::UnixStream::connect(&socket).await.ok() };
    proxy.ready(PATIENCE, "the proxy to listen", listening).await?;
    Ok((proxy, socket))
}

async fn deploy(cluster: &Cluster, more: &[Value]) -> Result<()> {
    let mut objects = Vec::new();
    for file in
        ["namespace.yaml", "csidriver.yaml", "storageclass.yaml", "volumesnapshotclass.yaml"]
    {
        objects.extend(manifest(file)?);
    }
    for object in &mut objects {
        if object["kind"] == "CSIDriver" {
            object["spec"]["attachRequired"] = json!(true);
        }
    }
    let metadata = json!({ "name": ACCOUNT, "namespace": NAMESPACE });
    objects.push(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }));
    // The controllers run in one process, so their common account gets the roles of all of them.
    let account = Subject::Account { namespace: NAMESPACE, name: ACCOUNT };
    for controller in CONTROLLERS {
        objects.extend(deploy::roles(controller, NAMESPACE, &[account])?);
    }
    objects.extend_from_slice(more);
    cluster.apply_all(&objects).await
}

async fn leases(cluster: &Cluster) -> Option<usize> {
    let arguments = ["get", "leases", "--namespace", NAMESPACE, "--output=name"];
    let found = cluster.kubectl(&arguments).await.ok()?;
    Some(String::from_utf8_lossy(&found.stdout).lines().count())
}
