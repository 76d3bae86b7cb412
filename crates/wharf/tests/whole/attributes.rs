//! Claims whose VolumeAttributesClass changes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use wharf_testkit::process::wait_for;

use crate::{
    objects::claim,
    rig::{DRIVER, PATIENCE},
    world::{ATTRIBUTES, CLAIM, POD, VOLUME, World, has},
};

#[tokio::test]
async fn limits_follow_the_class_of_a_claim() -> Result<()> {
    let Some(world) = World::new("limited").await? else { return Ok(()) };
    let class = |parameters: Value| json!({ "driverName": DRIVER, "parameters": parameters });
    world.create(ATTRIBUTES, "slow", class(json!({ "riops": "501" }))).await?;
    world.create(ATTRIBUTES, "slower", class(json!({ "riops": "251", "wbps": "8388608" }))).await?;
    world.create(ATTRIBUTES, "misspelt", class(json!({ "iops": "1" }))).await?;

    let mut data = claim("local", "320Mi");
    data["spec"]["volumeAttributesClassName"] = json!("slow");
    world.create(CLAIM, "data", data).await?;
    world.run("user", "data", "true").await?;
    world.running("user").await?;
    let made = [world.bound("data").await?];
    is(&world, "slow").await?;
    limited(&world, "501").await?;

    change(&world, "slower").await?;
    is(&world, "slower").await?;
    limited(&world, "251").await?;
    let volume = world.get(VOLUME, &made[0].name).await?.context("the volume")?;
    assert_eq!(volume["spec"]["volumeAttributesClassName"], "slower");

    // What the driver refuses is said, and undone by asking for something else.
    change(&world, "misspelt").await?;
    let refused =
        |it: &Value| (it["status"]["modifyVolumeStatus"]["status"] == "Infeasible").then_some(());
    world.until(CLAIM, "data", "the driver refuses", refused).await?;
    has(
        &world.why("data").await?,
        &["Modifying", "the driver refuses VolumeAttributesClass misspelt"],
    )?;
    limited(&world, "251").await?;
    change(&world, "slow").await?;
    is(&world, "slow").await?;
    limited(&world, "501").await?;

    world.end_pod("user").await?;
    world.delete(CLAIM, "data").await?;
    world.nothing_left(&made).await?;
    for name in ["slow", "slower", "misspelt"] {
        world.delete(ATTRIBUTES, name).await?;
    }
    world.end().await
}

async fn change(world: &World, class: &str) -> Result<()> {
    let patch = json!({ "spec": { "volumeAttributesClassName": class } });
    world.patch(CLAIM, "data", &patch).await
}

async fn is(world: &World, class: &str) -> Result<()> {
    world
        .until(CLAIM, "data", &format!("its class is {class}"), |it| {
            let status = &it["status"];
            let settled = status["modifyVolumeStatus"].is_null();
            (settled && status["currentVolumeAttributesClassName"] == class).then_some(())
        })
        .await
}

/// Waits until the kernel limits reads of the pod's device to `riops` per second.
async fn limited(world: &World, riops: &str) -> Result<()> {
    let pod = world.get(POD, "user").await?.context("the pod")?;
    let uid = pod["metadata"]["uid"].as_str().context("a UID")?;
    wait_for(PATIENCE, &format!("a limit of {riops} in the pod's cgroup"), || {
        let limits: String =
            groups(Path::new("/sys/fs/cgroup"), uid).iter().map(|it| limits(it)).collect();
        let words: Vec<_> = limits.split_whitespace().collect();
        let found = words.iter().any(|word| word.strip_prefix("riops=").unwrap_or(word) == riops);
        std::future::ready(found.then_some(()))
    })
    .await
}

/// The cgroups of a pod and its containers.
fn groups(folder: &Path, uid: &str) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found = Vec::new();
    for folder in folders.map(|entry| entry.path()) {
        if folder.display().to_string().contains(uid) {
            found.push(folder.clone());
        }
        found.extend(groups(&folder, uid));
    }
    found
}

/// What the kernel limits there, in either version.
fn limits(group: &Path) -> String {
    let files = ["io.max", "blkio.throttle.read_iops_device"].map(|name| group.join(name));
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect()
}
