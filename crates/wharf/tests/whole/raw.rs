//! Volumes without a filesystem.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use wharf_testkit::process::wait_for;

use crate::{
    bytes::digest_of,
    growth::at_least,
    objects::{claim, copy, larger, raw},
    rig::{AT_ONCE, PATIENCE},
    world::{CLAIM, CONTENT, SNAPSHOT, VOLUME, World},
};

const MIB: usize = 1 << 20;
const WRITE: &str = "yes pattern | dd of=/dev/data bs=1M count=8 iflag=fullblock conv=fsync";
const READ: &str = "head -c 8388608 /dev/data | sha256sum";
/// Prints how many MiB the device has, whenever that changes.
const WATCH: &str = "old=; while :; do now=$(($(blockdev --getsize64 /dev/data) >> 20)); \
                     [ \"$now\" = \"$old\" ] || echo \"size=$now\"; old=$now; sleep 0.5; done";

#[tokio::test]
async fn a_device_s_bytes_are_in_its_restore_and_it_grows_in_use() -> Result<()> {
    let Some(world) = World::new("raw").await? else { return Ok(()) };
    let written = digest_of(&"pattern\n".repeat(8 * MIB / "pattern\n".len()));
    let same = |text: &str| text.contains(&written).then_some(());

    world.create(CLAIM, "source", raw(claim("local", "32Mi"))).await?;
    world.run_raw("writer", "source", &format!("{WRITE}; {READ}; {WATCH}")).await?;
    world.says("writer", &written, same).await?;
    let source = world.bound("source").await?;
    let volume = world.get(VOLUME, &source.name).await?.context("the volume")?;
    ensure!(volume["spec"]["volumeMode"] == "Block", "{volume:#}");
    ensure!(volume["spec"]["csi"]["fsType"].is_null(), "{volume:#}");

    let of = json!({ "source": { "persistentVolumeClaimName": "source" } });
    world.create(SNAPSHOT, "dusk", json!({ "spec": of })).await?;
    let snapshot = world.ready("dusk").await?;
    let content = world.get(CONTENT, &snapshot.name).await?.context("the content")?;
    ensure!(content["spec"]["sourceVolumeMode"] == "Block", "{content:#}");
    let dusk =
        json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "dusk" });
    world.create(CLAIM, "restored", raw(copy("local", "32Mi", dusk.clone()))).await?;
    world.run_raw("reader", "restored", READ).await?;
    world.says("reader", &written, same).await?;
    let restored = world.bound("restored").await?;
    world.create(CLAIM, "formatted", copy(AT_ONCE, "32Mi", dusk)).await?;
    wait_for(PATIENCE, "no filesystem to be made of a device", || async {
        let told = world.why("formatted").await.ok()?;
        told.contains("modifies the mode of the source volume").then_some(())
    })
    .await?;

    world.patch(CLAIM, "source", &larger("64Mi")).await?;
    world.says("writer", "a larger size", |text| at_least(text, 64)).await?;
    world.has_size("source", "64Mi").await?;
    world.end_pod("writer").await?;
    world.run_raw("again", "source", READ).await?;
    world.says("again", &written, same).await?;

    for pod in ["reader", "again"] {
        world.end_pod(pod).await?;
    }
    for claim in ["source", "restored", "formatted"] {
        world.delete(CLAIM, claim).await?;
    }
    world.delete(SNAPSHOT, "dusk").await?;
    world.gone(SNAPSHOT, "dusk").await?;
    world.nothing_left(&[source, snapshot, restored]).await?;
    world.end().await
}
