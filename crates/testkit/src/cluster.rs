//! A cluster in a folder: etcd, kube-apiserver and optionally kube-controller-manager,
//! kube-scheduler, containerd and a kubelet, all of them real, on the loopback interface.
//!
//! Everything is below one temporary folder. A guard process outside of the test process removes
//! the remains, also after a crash. A kubelet needs root, and only one runs at a time: kubelets of
//! one machine kill each other's processes.

mod containerd;
mod control_plane;
mod controllers;
mod etcd;
mod exclusive;
mod guard;
mod image;
mod kubelet;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::{
    containerd::Containerd,
    control_plane::{ControlPlane, Extras},
    controllers::Controllers,
    exclusive::Exclusive,
    guard::Guard,
    kubelet::Kubelet,
};
pub use self::{etcd::Versions, image::Image};
use crate::{peers, process};

/// An image on every node: busybox with links for all of its commands. It runs `sh`.
pub const IMAGE: &str = image::BUSYBOX;

const COMMAND: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(30);

/// A running cluster. Dropping it kills its processes and removes its folder; [`Cluster::stop`]
/// stops them properly.
#[derive(Debug)]
pub struct Cluster {
    // Fields are dropped in this order: users before the parts that they depend on, and the guard
    // last.
    kubelet: Option<Kubelet>,
    containerd: Option<Containerd>,
    controllers: Option<Controllers>,
    plane: ControlPlane,
    kubectl: PathBuf,
    kubelet_binary: PathBuf,
    node: String,
    gates: Vec<String>,
    guard: Guard,
    _exclusive: Option<Exclusive>,
}

/// The parts of a cluster.
#[derive(Debug)]
pub struct Builder {
    kubelet: bool,
    containerd: bool,
    controllers: bool,
    audited: bool,
    node: String,
    gates: Vec<String>,
    removed: Option<String>,
    images: Vec<Image>,
}

impl Cluster {
    /// A cluster with an etcd and a kube-apiserver.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            kubelet: false,
            containerd: false,
            controllers: false,
            audited: false,
            node: "node-a".to_owned(),
            gates: Vec::new(),
            removed: None,
            images: Vec::new(),
        }
    }

    /// The cluster without nodes that all tests of a binary share. Tests use different names for
    /// their objects.
    pub async fn shared() -> Result<Option<&'static Self>> {
        static SHARED: OnceCell<Option<Cluster>> = OnceCell::const_new();
        Ok(SHARED.get_or_try_init(|| Self::builder().start()).await?.as_ref())
    }

    /// The folder with all files of the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.guard.folder()
    }

    /// The audit log of the API server, one JSON object per line and request.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        control_plane::audit_log(self.folder())
    }

    /// The address of the API server.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.plane.address()
    }

    /// The kubeconfig of a cluster administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        self.plane.admin()
    }

    /// The kubeconfig of the node, with a node's rights.
    #[must_use]
    pub fn node_kubeconfig(&self) -> &Path {
        self.plane.node()
    }

    /// The node's name.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The kubelet's root folder, in place of `/var/lib/kubelet`.
    #[must_use]
    pub fn kubelet_root(&self) -> PathBuf {
        kubelet::root(self.folder())
    }

    /// The kubelet's folder of registration sockets.
    #[must_use]
    pub fn plugins_registry(&self) -> PathBuf {
        self.kubelet_root().join("plugins_registry")
    }

    /// The socket of the container runtime.
    #[must_use]
    pub fn runtime_socket(&self) -> PathBuf {
        containerd::socket(self.folder())
    }

    /// Runs kubectl as administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Output> {
        process::output(&self.command(arguments), COMMAND).await
    }

    /// The object that `kubectl get` returns; `None` if it does not exist.
    pub async fn get(&self, arguments: &[&str]) -> Result<Option<Value>> {
        let arguments = [&["get", "--ignore-not-found", "--output=json"], arguments].concat();
        let json = process::run(&self.command(&arguments), COMMAND).await?;
        Ok(if json.is_empty() { None } else { Some(serde_json::from_str(&json)?) })
    }

    /// Creates or updates `object`.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        let file = tempfile::NamedTempFile::new_in(self.folder())?;
        serde_json::to_writer(&file, object)?;
        let path = file.path().to_str().context("the folder's name is text")?;
        let arguments = ["apply", "--server-side", "--filename", path];
        process::run(&self.command(&arguments), COMMAND).await.map(drop)
    }

    /// Creates or updates `objects`, in their order.
    pub async fn apply_all(&self, objects: &[Value]) -> Result<()> {
        self.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": objects })).await
    }

    /// A kubeconfig with the rights of a service account, which must exist.
    pub async fn account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        // The default, an hour, is too short for some runs.
        let arguments = ["create", "token", name, "--namespace", namespace, "--duration=24h"];
        let token = process::run(&self.command(&arguments), COMMAND).await?;
        self.plane.kubeconfig(name, token.trim())
    }

    /// The kubectl that [`Cluster::kubectl`] runs.
    #[must_use]
    pub fn kubectl_binary(&self) -> &Path {
        &self.kubectl
    }

    /// The output of a pod's container since its start.
    pub fn output(&self, namespace: &str, pod: &str, container: &str) -> Result<String> {
        let prefix = format!("{namespace}_{pod}_");
        let mut text = String::new();
        for folder in kubelet::logs(self.folder()).read_dir()? {
            let folder = folder?;
            if folder.file_name().to_string_lossy().starts_with(&prefix) {
                text += &std::fs::read_to_string(folder.path().join(container).join("0.log"))?;
            }
        }
        // Each line begins with its time, its stream, and whether it is complete.
        let lines = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
        Ok(lines.map(|line| format!("{line}\n")).collect())
    }

    /// Creates the Node object that a kubelet would register.
    pub async fn create_node(&self, name: &str) -> Result<()> {
        let labels = json!({ "kubernetes.io/hostname": name });
        let metadata = json!({ "name": name, "labels": labels });
        self.apply(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })).await
    }

    /// The process IDs of etcd and of the kube-apiserver, if it runs.
    pub fn server_ids(&self) -> Vec<u32> {
        self.plane.ids()
    }

    /// Stops the kube-apiserver only.
    pub async fn stop_apiserver(&mut self) -> Result<()> {
        self.plane.stop_apiserver(STOP).await
    }

    /// Starts the kube-apiserver again, with the same address and data.
    pub async fn start_apiserver(&mut self) -> Result<()> {
        self.plane.start_apiserver().await?;
        self.ready().await
    }

    /// Writes a backup of all objects to a new file.
    pub async fn back_up(&self, file: &Path) -> Result<()> {
        self.plane.back_up(file).await
    }

    /// Restores a backup: restarts etcd and kube-apiserver with the objects of the backup.
    pub async fn restore(&mut self, backup: &Path, versions: Versions) -> Result<()> {
        self.plane.restore(backup, versions, STOP).await?;
        self.start_apiserver().await
    }

    /// Starts the kubelet of a cluster with a containerd, and waits until it has registered its
    /// node. It uses the runtime at the socket `runtime`: containerd itself, or a proxy.
    pub async fn start_kubelet(&mut self, runtime: &Path) -> Result<()> {
        ensure!(self.containerd.is_some(), "a kubelet needs a cluster with a containerd");
        let registered = self.command(&["get", "node", &self.node]);
        let (binary, config) = (&self.kubelet_binary, self.node_kubeconfig());
        let (node, gates) = (&self.node, &self.gates);
        let mut kubelet = Kubelet::start(binary, &self.guard, config, node, runtime, gates)?;
        kubelet.registered(&registered).await?;
        self.kubelet = Some(kubelet);
        Ok(())
    }

    /// Stops all processes and removes the folder, its mounts and its control groups.
    pub async fn stop(self) -> Result<()> {
        if let Some(kubelet) = self.kubelet {
            kubelet.stop(STOP).await?;
        }
        if let Some(containerd) = self.containerd {
            containerd.stop(STOP).await?;
        }
        if let Some(controllers) = self.controllers {
            controllers.stop(STOP).await?;
        }
        self.plane.stop(STOP).await?;
        self.guard.clear(STOP).await
    }

    async fn ready(&mut self) -> Result<()> {
        let command = self.command(&["get", "--raw", "/readyz"]);
        self.plane.ready(&command).await
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command.arg("--cache-dir").arg(self.folder().join("kubectl")).args(arguments);
        command
    }
}

impl Builder {
    /// Adds a kubelet, and so a containerd.
    #[must_use]
    pub fn kubelet(mut self, wanted: bool) -> Self {
        self.kubelet = wanted;
        self
    }

    /// Adds a containerd.
    #[must_use]
    pub fn containerd(mut self, wanted: bool) -> Self {
        self.containerd = wanted;
        self
    }

    /// Adds a kube-controller-manager and a kube-scheduler.
    #[must_use]
    pub fn controllers(mut self, wanted: bool) -> Self {
        self.controllers = wanted;
        self
    }

    /// Enables a feature gate in the kube-apiserver and the kubelet.
    #[must_use]
    pub fn gate(mut self, name: &str) -> Self {
        self.gates.push(name.to_owned());
        self
    }

    /// Adds an image to the node.
    #[must_use]
    pub fn image(mut self, image: Image) -> Self {
        self.images.push(image);
        self
    }

    /// Enables the [audit log](Cluster::audit_log).
    #[must_use]
    pub fn audited(mut self, wanted: bool) -> Self {
        self.audited = wanted;
        self
    }

    /// Enables a version of the API, such as `storage.k8s.io/v1beta1`, that this release is the
    /// first not to serve by default, for older programs.
    #[must_use]
    pub fn removed(mut self, version: &str) -> Self {
        self.removed = Some(version.to_owned());
        self
    }

    /// Sets the node's name, `node-a` by default.
    #[must_use]
    pub fn node(mut self, name: &str) -> Self {
        name.clone_into(&mut self.node);
        self
    }

    /// Starts the cluster and waits until its API answers and the kubelet has registered its node.
    /// `None` if peers are skipped; the current test is then recorded as skipped.
    pub async fn start(self) -> Result<Option<Cluster>> {
        let names = ["etcd", "kube-apiserver", "kubectl", "kubelet"];
        let [Some(etcd), Some(apiserver), Some(kubectl), Some(kubelet)] = names.map(peers::binary)
        else {
            return Ok(None);
        };
        let controllers = match self.controllers {
            true => {
                let names = ["kube-controller-manager", "kube-scheduler"];
                let [Some(manager), Some(scheduler)] = names.map(peers::binary) else {
                    return Ok(None);
                };
                Some([manager, scheduler])
            }
            false => None,
        };
        let runtime = self.kubelet || self.containerd;
        if runtime {
            ensure!(
                rustix::process::geteuid().is_root(),
                "containerd and kubelet must be started as root"
            );
        }
        let exclusive = if runtime { Some(Exclusive::acquire().await?) } else { None };
        let guard = Guard::new(runtime)?;
        let programs = [etcd.as_path(), apiserver.as_path()];
        let extras =
            Extras { gates: &self.gates, audited: self.audited, removed: self.removed.as_deref() };
        let plane = ControlPlane::start(guard.folder(), programs, &self.node, extras).await?;
        let mut cluster = Cluster {
            kubelet: None,
            containerd: None,
            controllers: None,
            plane,
            kubectl,
            kubelet_binary: kubelet,
            node: self.node,
            gates: self.gates,
            guard,
            _exclusive: exclusive,
        };
        if runtime {
            cluster.containerd = Some(Containerd::start(&cluster.guard, &self.images).await?);
        }
        cluster.ready().await?;
        if let Some([manager, scheduler]) = &controllers {
            let started =
                Controllers::start(cluster.folder(), &cluster.plane, [manager, scheduler]);
            cluster.controllers = Some(started.await?);
        }
        if self.kubelet {
            cluster.start_kubelet(&cluster.runtime_socket()).await?;
        }
        Ok(Some(cluster))
    }
}
