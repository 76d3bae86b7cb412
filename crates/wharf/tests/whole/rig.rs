//! The cluster that all tests here share, and what is deployed to it.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::sync::OnceCell;
use wharf_testkit::cluster::Cluster;
use wharf_testkit::deploy::{self, CONTROLLERS, Subject, manifest};
use wharf_testkit::process::{self, Process};
use wharf_testkit::skip;

use crate::node::{Driver, WHARF};

/// Each step of many that take their time, with other tests at work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const DRIVER: &str = "local.csi.wharf";
/// A class of [`DRIVER`] beside that of the manifests: ext4, and made at once.
pub(crate) const AT_ONCE: &str = "local-at-once";
/// Where the sidecars are, and whom they act as.
pub(crate) const NAMESPACE: &str = "wharf";
pub(crate) const ACCOUNT: &str = "wharf-sidecars";

/// A cluster of one node with the driver and the sidecars.
pub(crate) struct Rig {
    pub(crate) cluster: Cluster,
    pub(crate) driver: Driver,
    /// Held, not used.
    _sidecars: Process,
}

impl Rig {
    /// The rig of all tests, started by the first; `None` where this machine cannot have one. What is left of it when
    /// the tests end is cleared up by the cluster's guard.
    pub(crate) async fn shared() -> Result<Option<&'static Self>> {
        static SHARED: OnceCell<Option<Rig>> = OnceCell::const_new();
        let rig = SHARED.get_or_try_init(Self::start).await?.as_ref();
        if rig.is_none() {
            skip::record(None, "needs root, mkfs.xfs and the peers of a whole cluster");
        }
        Ok(rig)
    }

    async fn start() -> Result<Option<Self>> {
        let programs = wharf_mount::programs::Programs::default();
        if !rustix::process::geteuid().is_root() || !programs.has("mkfs.xfs") {
            return Ok(None);
        }
        let builder = Cluster::builder().kubelet(true).controllers(true).gate("CSIVolumeHealth");
        let Some(cluster) = builder.start().await? else { return Ok(None) };
        wharf(&cluster, &["crds", "install"]).await?;
        deploy(&cluster).await?;
        let driver = Driver::start(&cluster, DRIVER, "4Gi", &["--attach=true"]).await?;
        // Each controller has its Lease. Snapshots of drivers with a snapshotter on each node are left to that.
        let namespace = format!("--leader-election-namespace={NAMESPACE}");
        let flags = ["--leader-election", &namespace, "--enable-distributed-snapshotting"];
        let mut sidecars = driver.sidecars(&cluster, &CONTROLLERS, &flags).await?;
        let led = || async { (leases(&cluster).await? == CONTROLLERS.len()).then_some(()) };
        sidecars.ready(PATIENCE, "every controller's Lease", led).await?;
        Ok(Some(Self { cluster, driver, _sidecars: sidecars }))
    }

    /// What `wharf` prints, asked as administrator.
    pub(crate) async fn wharf(&self, args: &[&str]) -> Result<String> {
        wharf(&self.cluster, args).await
    }
}

async fn wharf(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let mut command = Command::new(WHARF);
    command.args(args).arg("--kubeconfig").arg(cluster.kubeconfig());
    process::run(&command, PATIENCE).await
}

async fn deploy(cluster: &Cluster) -> Result<()> {
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
    let mut at_once = manifest("storageclass.yaml")?.remove(0);
    at_once["metadata"]["name"] = json!(AT_ONCE);
    at_once["volumeBindingMode"] = json!("Immediate");
    at_once["parameters"] = json!({ "csi.storage.k8s.io/fstype": "ext4" });
    objects.push(at_once);
    let metadata = json!({ "name": ACCOUNT, "namespace": NAMESPACE });
    objects.push(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }));
    // Roles that controllers have each for itself are those of their common account.
    let account = Subject::Account { namespace: NAMESPACE, name: ACCOUNT };
    for controller in CONTROLLERS {
        objects.extend(deploy::roles(controller, NAMESPACE, &[account])?);
    }
    cluster.apply_all(&objects).await
}

async fn leases(cluster: &Cluster) -> Option<usize> {
    let arguments = ["get", "leases", "--namespace", NAMESPACE, "--output=name"];
    let found = cluster.kubectl(&arguments).await.ok()?;
    Some(String::from_utf8_lossy(&found.stdout).lines().count())
}
