//! Claims that grow.

use anyhow::Result;
use serde_json::Value;

use crate::{
    objects::{claim, condition, larger},
    rig::AT_ONCE,
    world::{CLAIM, World, has},
};

/// Prints how many MiB the filesystem has, whenever that changes.
const WATCH: &str = "old=; while :; do now=$(df -m /data | awk 'END { print $(NF-4) }'); \
                     [ \"$now\" = \"$old\" ] || echo \"size=$now\"; old=$now; sleep 0.5; done";

#[tokio::test]
async fn xfs_grows_under_a_pod_that_runs() -> Result<()> {
    let Some(world) = World::new("growing").await? else { return Ok(()) };
    world.create(CLAIM, "data", claim("local", "320Mi")).await?;
    world.run("user", "data", WATCH).await?;
    world.says("user", "its size", |text| at_least(text, 1)).await?;
    let made = [world.bound("data").await?];

    world.patch(CLAIM, "data", &larger("480Mi")).await?;
    world.says("user", "a larger size", |text| at_least(text, 350)).await?;
    world.has_size("data", "480Mi").await?;
    world.end_pod("user").await?;
    world.delete(CLAIM, "data").await?;
    world.nothing_left(&made).await?;
    world.end().await
}

#[tokio::test]
async fn ext4_grows_when_its_next_pod_starts() -> Result<()> {
    let Some(world) = World::new("resting").await? else { return Ok(()) };
    // Of a class that waits for nobody.
    world.create(CLAIM, "data", claim(AT_ONCE, "64Mi")).await?;
    let made = [world.bound("data").await?];
    world.run("first", "data", "echo kept > /data/word; sync; echo written").await?;
    world.says("first", "that it wrote", |text| text.contains("written").then_some(())).await?;
    world.end_pod("first").await?;
    world.detached(&made[0]).await?;

    world.patch(CLAIM, "data", &larger("128Mi")).await?;
    let pending = |it: &Value| condition(it, "FileSystemResizePending");
    world.until(CLAIM, "data", "it waits for its node", pending).await?;
    let why = world.why("data").await?;
    has(&why, &["Growing", "its node does the rest once a pod runs", "kubelet"])?;
    world.run("second", "data", &format!("cat /data/word; {WATCH}")).await?;
    world.says("second", "a larger size", |text| at_least(text, 100)).await?;
    world.says("second", "what was written", |text| text.contains("kept").then_some(())).await?;
    world.has_size("data", "128Mi").await?;
    has(&world.why("data").await?, &["claim resting/data: Bound"])?;

    // All of a namespace at once, the pod in use too.
    world.end().await?;
    world.nothing_left(&made).await
}

/// A kernel that refuses to grow ext4 while it is mounted says so, and the next pod finds it grown.
#[tokio::test]
async fn ext4_that_cannot_grow_under_its_pod_grows_under_the_next() -> Result<()> {
    let Some(world) = World::new("refused").await? else { return Ok(()) };
    world.create(CLAIM, "data", claim(AT_ONCE, "64Mi")).await?;
    world.run("first", "data", WATCH).await?;
    world.says("first", "its size", |text| at_least(text, 1)).await?;
    let made = [world.bound("data").await?];
    world.patch(CLAIM, "data", &larger("128Mi")).await?;
    let decided = |it: &Value| match condition(it, "NodeResizeError") {
        Some(()) => Some(true),
        None => (it["status"]["capacity"]["storage"] == "128Mi").then_some(false),
    };
    let refused = world.until(CLAIM, "data", "its node tried to grow it", decided).await?;
    if refused {
        let why = world.why("data").await?;
        has(&why, &["Growing", "start its pod again", "NodeResizeError", "CAP_SYS_RESOURCE"])?;
        world.running("first").await?;
        world.end_pod("first").await?;
        world.run("second", "data", WATCH).await?;
        world.says("second", "a larger size", |text| at_least(text, 100)).await?;
    }
    world.has_size("data", "128Mi").await?;
    world.end().await?;
    world.nothing_left(&made).await
}

/// The last size that was printed, if it is this much.
pub(crate) fn at_least(text: &str, size: u64) -> Option<u64> {
    let last = text.lines().rev().find_map(|line| line.strip_prefix("size="))?;
    last.parse().ok().filter(|last| *last >= size)
}
