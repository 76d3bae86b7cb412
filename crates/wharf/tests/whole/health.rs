//! A damaged volume and its pod, through the kubelet's gate CSIVolumeHealth.

use std::{fs::File, path::Path};

use anyhow::{Context, Result};
use rustix::fs::FallocateFlags;
use serde_json::{Value, json};
use wharf_testkit::{deploy::manifest, rig::Driver};

use crate::{
    node::{PoolView, wharf},
    objects::claim,
    world::{CLAIM, CSI_DRIVER, CSI_NODE, POD, VOLUME, World},
};

/// A driver of its own, since nothing new is made while its pool is full; volumes are made by hand
/// and not attached.
const FRAIL: &str = "frail.csi.wharf";
const SIZE: &str = "16Mi";
const FLOOR: u64 = 64 << 20;

#[tokio::test]
async fn what_broke_shows_in_the_pod_and_on_the_node() -> Result<()> {
    let Some(world) = World::new("frail").await? else { return Ok(()) };
    let manifest = manifest("csidriver.yaml")?.remove(0);
    world.create(CSI_DRIVER, FRAIL, json!({ "spec": manifest["spec"] })).await?;
    let driver =
        Driver::start(wharf(), &world.rig.cluster, FRAIL, "400Mi", &["--attach=false"]).await?;
    let id = by_hand(&world, &driver).await?;
    world.run("user", "data", "echo begun").await?;
    world.running("user").await?;

    // Its image, moved away and back.
    let image = driver.files().pop().context("the volume's image")?;
    let aside = driver.images().join("aside.img");
    std::fs::rename(&image, &aside)?;
    let lost = |pod: &Value| {
        let told = conditions(&pod["status"]["volumeHealth"], "data");
        (told == [("DataLoss", "ImageMissing")]).then_some(())
    };
    world.until(POD, "user", "its volume's health tells of a loss", lost).await?;
    std::fs::rename(&aside, &image)?;
    let well =
        |pod: &Value| conditions(&pod["status"]["volumeHealth"], "data").is_empty().then_some(());
    world.until(POD, "user", "its volume is well again", well).await?;

    // The pool, filled by a stranger.
    let node = world.rig.cluster.node();
    let stranger = driver.images().join("stranger");
    fill(&stranger)?;
    let full = |node: &Value| {
        let told = conditions(&node["status"]["storageHealth"], FRAIL);
        (told == [("StorageDegraded", "PoolNearlyFull")]).then_some(())
    };
    world.until(CSI_NODE, node, "its storage is nearly full", full).await?;
    std::fs::remove_file(&stranger)?;
    let room =
        |node: &Value| conditions(&node["status"]["storageHealth"], FRAIL).is_empty().then_some(());
    world.until(CSI_NODE, node, "its storage is well again", room).await?;

    world.end_pod("user").await?;
    world.delete(CLAIM, "data").await?;
    world.gone(CLAIM, "data").await?;
    world.delete(VOLUME, "frail").await?;
    world.gone(VOLUME, "frail").await?;
    driver.csi(&["rm", &id]).await?;
    assert_eq!(driver.rows().await?, []);
    world.delete(CSI_DRIVER, FRAIL).await?;
    world.end().await
}

/// A volume made by hand, with its PersistentVolume and a claim on that; gives its id.
async fn by_hand(world: &World, driver: &Driver) -> Result<String> {
    let made =
        driver.csi(&["create", "frail", "--size", SIZE, "--fs", "ext4", "-o", "json"]).await?;
    let made: Value = serde_json::from_str(&made)?;
    let id = made["volume"]["volume_id"].as_str().context("an id")?.to_owned();
    let volume = json!({ "spec": {
        "capacity": { "storage": SIZE },
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": { "namespace": world.namespace, "name": "data" },
        "csi": { "driver": FRAIL, "volumeHandle": id, "fsType": "ext4" },
    } });
    world.create(VOLUME, "frail", volume).await?;
    let mut claim = claim("", SIZE);
    claim["spec"]["volumeName"] = json!("frail");
    world.create(CLAIM, "data", claim).await?;
    Ok(id)
}

/// A file that leaves the disk less than the floor.
fn fill(path: &Path) -> Result<()> {
    let file = File::create(path)?;
    let disk = rustix::fs::fstatvfs(&file)?;
    let size = disk.f_bavail * disk.f_frsize - FLOOR / 2;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size)?;
    Ok(())
}

/// Status and reason of each condition of the entry `name`.
fn conditions<'a>(health: &'a Value, name: &str) -> Vec<(&'a str, &'a str)> {
    let entries = health.as_array().map(Vec::as_slice).unwrap_or_default();
    let own = entries.iter().find(|entry| entry["name"] == name);
    let told = own.and_then(|entry| entry["healthConditions"].as_array());
    let text = |value: &'a Value| value.as_str().unwrap_or_default();
    told.into_iter().flatten().map(|it| (text(&it["status"]), text(&it["reason"]))).collect()
}
