//! The cluster that all tests here share.

use anyhow::Result;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
pub(crate) use wharf_testkit::rig::{DRIVER, PATIENCE, Rig};
use wharf_testkit::{cluster::Cluster, deploy::manifest, rig::Setup, skip};

use crate::node::wharf;

/// A class of [`DRIVER`] beside that of the manifests: ext4, and made at once.
pub(crate) const AT_ONCE: &str = "local-at-once";

/// The rig of all tests, started by the first; `None` where this machine cannot have one. The
/// cluster's guard removes it when the tests end.
pub(crate) async fn shared() -> Result<Option<&'static Rig>> {
    static SHARED: OnceCell<Option<Rig>> = OnceCell::const_new();
    let rig = SHARED.get_or_try_init(start).await?.as_ref();
    if rig.is_none() {
        skip::record(None, "needs root, mkfs.xfs and the peers of a whole cluster");
    }
    Ok(rig)
}

async fn start() -> Result<Option<Rig>> {
    let programs = wharf_mount::programs::Programs::default();
    if !rustix::process::geteuid().is_root() || !programs.has("mkfs.xfs") {
        return Ok(None);
    }
    let objects = vec![at_once()?];
    let setup = Setup { wharf: wharf(), pool: "4Gi", proxy: false, sidecars: &[], objects };
    setup.start(Cluster::builder().gate("CSIVolumeHealth")).await
}

fn at_once() -> Result<Value> {
    let mut class = manifest("storageclass.yaml")?.remove(0);
    class["metadata"]["name"] = json!(AT_ONCE);
    class["volumeBindingMode"] = json!("Immediate");
    class["parameters"] = json!({ "csi.storage.k8s.io/fstype": "ext4" });
    Ok(class)
}
