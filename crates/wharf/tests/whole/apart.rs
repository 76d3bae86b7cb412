//! A driver of one node, deployed with its own sidecars, whose volumes are not attached.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use wharf_testkit::{deploy::manifest, process::wait_for, rig::Driver};

use crate::{
    node::{PoolView, wharf},
    objects::claim,
    rig::PATIENCE,
    world::{
        ATTACHMENT, CLAIM, CLASS, CONTENT, CSI_DRIVER, SNAPSHOT, SNAPSHOT_CLASS, VOLUME, World,
    },
};

const APART: &str = "apart.csi.wharf";

#[tokio::test]
async fn volumes_of_a_pod_are_made_and_deleted_with_it() -> Result<()> {
    let Some(world) = World::new("apart").await? else { return Ok(()) };
    let object = |mut manifests: Vec<Value>| {
        let mut object = manifests.remove(0);
        object["metadata"] = json!({});
        object
    };
    let mut class = object(manifest("storageclass.yaml")?);
    class["provisioner"] = json!(APART);
    world.create(CLASS, "apart", class).await?;
    world.create(CSI_DRIVER, APART, object(manifest("csidriver.yaml")?)).await?;
    let cluster = &world.rig.cluster;
    let driver = Driver::start(wharf(), cluster, APART, "1Gi", &["--attach=false"]).await?;
    let mut snapshot_class = object(manifest("volumesnapshotclass.yaml")?);
    snapshot_class["driver"] = json!(APART);
    world.create(SNAPSHOT_CLASS, "apart", snapshot_class).await?;
    let controllers = ["provisioner", "resizer", "snapshotter"];
    let sidecars = driver.sidecars(cluster, &controllers, &["--node-deployment"]).await?;

    let template = claim("apart", "320Mi");
    let claimed = json!({ "name": "claimed", "ephemeral": { "volumeClaimTemplate": template } });
    let size = json!({ "size": "24Mi" });
    let inline = json!({ "driver": APART, "fsType": "ext4", "volumeAttributes": size });
    let inline = json!({ "name": "inline", "csi": inline });
    let script = "echo one > /claimed/word && echo two > /inline/word && cat /*/word && mount";
    world.run_with("user", &[claimed, inline], script).await?;
    let both = |text: &str| {
        let mounted = |line: &str| text.lines().any(|it| it.contains(line));
        (text.starts_with("one\ntwo\n")
            && mounted("/claimed type xfs")
            && mounted("/inline type ext4"))
        .then_some(())
    };
    world.says("user", "what it wrote, and on what", both).await?;
    let bound = world.get(CLAIM, "user-claimed").await?.context("the claim of the pod")?;
    let volume = bound["spec"]["volumeName"].as_str().context("its volume")?;
    ensure!(driver.rows().await?.len() == 2, "{:?}", driver.rows().await?);
    let attachments = world.list(ATTACHMENT).await?;
    let own = attachments.iter().find(|it| it["spec"]["source"]["persistentVolumeName"] == volume);
    ensure!(own.is_none(), "{own:?}");

    snapshot(&world).await?;
    world.end_pod("user").await?;
    world.gone(CLAIM, "user-claimed").await?;
    world.gone(VOLUME, volume).await?;
    wait_for(PATIENCE, "an empty pool", || async {
        (driver.rows().await.ok()?.is_empty() && driver.files().is_empty()).then_some(())
    })
    .await?;
    ensure!(sidecars.stop(PATIENCE).await?.success());
    world.delete(CLASS, "apart").await?;
    world.delete(SNAPSHOT_CLASS, "apart").await?;
    world.delete(CSI_DRIVER, APART).await?;
    world.end().await
}

/// A snapshot is taken by the snapshotter of the node that the volume is on, and goes again.
async fn snapshot(world: &World) -> Result<()> {
    let source = json!({ "persistentVolumeClaimName": "user-claimed" });
    let wish = json!({ "spec": { "source": source, "volumeSnapshotClassName": "apart" } });
    world.create(SNAPSHOT, "user", wish).await?;
    let taken = world.ready("user").await?;
    let content = world.get(CONTENT, &taken.name).await?.context("the snapshot's content")?;
    let labels = &content["metadata"]["labels"];
    let node = world.rig.cluster.node();
    ensure!(labels["snapshot.storage.kubernetes.io/managed-by"] == node, "{content:#}");
    world.delete(SNAPSHOT, "user").await?;
    world.gone(SNAPSHOT, "user").await?;
    world.gone(CONTENT, &taken.name).await
}
