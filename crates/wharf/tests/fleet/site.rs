//! The fixture of a test: a driver, its classes, a namespace and a node.

use std::{path::PathBuf, process::Command, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use wharf_testkit::{cluster::Cluster, process};

use crate::{
    api::{Api, PATIENCE},
    ledger::{Door, Ledger},
    program::{Kind, Make, Program},
    role,
    sidecar::{Order, Sidecar},
};

/// Go's resizer reads classes of attributes in the version that was before the first.
const OLD_CLASSES: &str = "storage.k8s.io/v1beta1";

const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const SNAPSHOT_CLASSES: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";

/// Tests keep apart by the name, which their driver, namespace, node and classes bear.
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) api: Api,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) cluster: &'static Cluster,
    folder: TempDir,
    _door: Door,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// A time in which one holds a Lease.
pub(crate) struct Term {
    pub(crate) holder: String,
    pub(crate) since: Timestamp,
}

impl Site {
    /// With a driver that is served. `None` where there is no cluster to be had.
    pub(crate) async fn new(name: &str) -> Option<Self> {
        static SHARED: OnceCell<Option<Cluster>> = OnceCell::const_new();
        Self::on(&SHARED, name).await
    }

    /// The same on the cluster of this cell, which is started for the first site on it.
    pub(crate) async fn on(
        cluster: &'static OnceCell<Option<Cluster>>,
        name: &str,
    ) -> Option<Self> {
        let cluster = cluster.get_or_init(prepared).await.as_ref()?;
        let (folder, ledger) = (tempfile::tempdir().unwrap(), Arc::new(Ledger::default()));
        let door = ledger.open(name, &folder.path().join("csi.sock"));
        let api = Api::new(cluster.kubeconfig()).await;
        let name = name.to_owned();
        let site = Self { name, api, ledger, cluster, folder, _door: door, _turn: None };
        site.declare().await;
        Some(site)
    }

    /// The same for tests that run a snapshot controller: it works for all drivers, so there is one
    /// at a time.
    pub(crate) async fn with_snapshots(name: &str) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::const_new(());
        let turn = TURN.lock().await;
        Some(Self { _turn: Some(turn), ..Self::new(name).await? })
    }

    /// Starts a sidecar that works alone; `None` where there is no such program.
    pub(crate) fn start(&self, kind: Kind, make: Make) -> Option<Sidecar> {
        self.order(Program::One(kind, make), None).start()
    }

    /// Starts one of each kind, of the make that is asked for.
    pub(crate) fn start_all(&self, make_of: impl Fn(Kind) -> Make) -> Option<Vec<Sidecar>> {
        Kind::ALL.into_iter().map(|kind| self.start(kind, make_of(kind))).collect()
    }

    /// Starts one that stands for election on a host named after its make.
    pub(crate) fn start_elected(&self, kind: Kind, make: Make) -> Option<Sidecar> {
        self.order(Program::One(kind, make), Some(Self::host(make))).start()
    }

    /// Starts all controllers in one process of ours.
    pub(crate) fn start_combined(&self) -> Sidecar {
        self.order(Program::Combined, None).start().unwrap()
    }

    /// Waits until a sidecar of this make holds its Lease.
    pub(crate) async fn leads(&self, kind: Kind, make: Make) {
        let ours = Self::host(Make::Ours);
        // Go's provisioner makes up a name; those of all others begin with their host.
        let is_held = |holder: &str| (holder == ours) == (make == Make::Ours);
        self.term(&kind.lease(&self.name), is_held).await;
    }

    /// Waits until a Lease is renewed, and gives its holder's host then.
    pub(crate) async fn renewed(&self, lease: &str) -> String {
        let path = lease_path(lease);
        let before = self.api.get(&path).await.unwrap();
        let is_new = |lease: &Value| lease["spec"]["renewTime"] != before["spec"]["renewTime"];
        holder(&self.api.wait(&path, is_new).await).unwrap_or_default()
    }

    /// Waits until a Lease has a holder that `wanted` accepts.
    pub(crate) async fn term(&self, lease: &str, wanted: impl Fn(&str) -> bool) -> Term {
        let path = lease_path(lease);
        let is_held = |lease: &Value| holder(lease).is_some_and(|it| !it.is_empty() && wanted(&it));
        let lease = self.api.wait(&path, is_held).await;
        let since = lease["spec"]["acquireTime"].as_str().unwrap().parse().unwrap();
        Term { holder: holder(&lease).unwrap(), since }
    }

    /// The StorageClass and the VolumeSnapshotClass, made anew with changes that the API takes from
    /// nobody.
    pub(crate) async fn remake_classes(
        &self,
        change: impl FnOnce(&mut Value),
        change_snapshots: impl FnOnce(&mut Value),
    ) {
        for path in [STORAGE_CLASSES, SNAPSHOT_CLASSES] {
            self.api.delete(&format!("{path}/{}", self.name)).await;
        }
        self.declare_classes(change, change_snapshots).await;
    }

    /// A node on which the driver is.
    pub(crate) async fn add_node(&self, name: &str) {
        let driver = json!({ "name": self.name, "nodeID": format!("{name}-id") });
        let node = json!({ "metadata": { "name": name }, "spec": { "drivers": [driver] } });
        self.api.create("/apis/storage.k8s.io/v1/csinodes", "CSINode", node).await;
    }

    /// Another socket of the driver.
    pub(crate) fn open(&self, socket: &str) -> (Door, PathBuf) {
        let path = self.folder.path().join(socket);
        (self.ledger.open(&self.name, &path), path)
    }

    pub(crate) fn order<'a>(&'a self, program: Program, host: Option<&'a str>) -> Order<'a> {
        Order {
            program,
            user: program.user(),
            cluster: self.cluster,
            folder: self.folder.path(),
            socket: self.socket(),
            host,
            server: None,
            node: None,
            more: &[],
        }
    }

    /// The name of the host on which replicas of one make run.
    pub(crate) fn host(make: Make) -> &'static str {
        match make {
            Make::Ours => "ours",
            Make::Go => "go",
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    async fn declare(&self) {
        let (name, api) = (&self.name, &self.api);
        let metadata = json!({ "name": name });
        let namespace = json!({ "metadata": metadata });
        api.create("/api/v1/namespaces", "Namespace", namespace).await;
        self.add_node(name).await;
        let attributes = json!({
            "metadata": metadata, "driverName": name, "parameters": { "iops": "100" },
        });
        let path = "/apis/storage.k8s.io/v1/volumeattributesclasses";
        api.create(path, "VolumeAttributesClass", attributes).await;
        self.declare_classes(|_| {}, |_| {}).await;
    }

    async fn declare_classes(
        &self,
        change: impl FnOnce(&mut Value),
        change_snapshots: impl FnOnce(&mut Value),
    ) {
        let (name, metadata) = (&self.name, json!({ "name": self.name }));
        let mut class =
            json!({ "metadata": metadata, "provisioner": name, "allowVolumeExpansion": true });
        change(&mut class);
        self.api.create(STORAGE_CLASSES, "StorageClass", class).await;
        let mut class = json!({ "metadata": metadata, "driver": name, "deletionPolicy": "Delete" });
        change_snapshots(&mut class);
        self.api.create(SNAPSHOT_CLASSES, "VolumeSnapshotClass", class).await;
    }
}

fn lease_path(lease: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/{lease}")
}

/// The host of the replica that holds a Lease, which is what a holder's name begins with.
fn holder(lease: &Value) -> Option<String> {
    let identity = lease["spec"]["holderIdentity"].as_str()?;
    Some(identity.split('_').next().unwrap_or_default().to_owned())
}

/// A cluster with the kinds of snapshots and the roles of deploy/.
async fn prepared() -> Option<Cluster> {
    let builder = Cluster::builder().audited(true).removed(OLD_CLASSES);
    let cluster = builder.start().await.unwrap()?;
    let mut install = Command::new(env!("CARGO_BIN_EXE_wharf"));
    install.args(["crds", "install", "--kubeconfig"]).arg(cluster.kubeconfig());
    process::run(&install, PATIENCE).await.unwrap();
    role::grant(&cluster).await;
    Some(cluster)
}
