//! A claim, a pod that writes, and copies of its data.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};
use wharf_testkit::process::wait_for;

use crate::{
    objects::{claim, copy},
    rig::PATIENCE,
    world::{ATTACHMENT, CLAIM, SNAPSHOT, VOLUME, World, has},
};

const SIZE: &str = "320Mi";
const WRITE: &str = "seq 200000 > /data/numbers && sync && sha256sum < /data/numbers";
const READ: &str = "sha256sum < /data/numbers";

#[tokio::test]
async fn a_pods_bytes_are_in_a_snapshot_its_restore_and_a_clone() -> Result<()> {
    let Some(world) = World::new("bytes").await? else { return Ok(()) };
    let written = digest();
    let same = |text: &str| text.contains(&written).then_some(());

    world.create(CLAIM, "source", claim("local", SIZE)).await?;
    has(&world.why("source").await?, &["Pending", "waits for a pod that uses it"])?;
    world.run("writer", "source", WRITE).await?;
    world.says("writer", &written, same).await?;
    let source = world.bound("source").await?;
    attached(&world, &source.name).await?;
    has(&world.why("source").await?, &["claim bytes/source: Bound"])?;
    let all = world.status(&["--all"]).await?;
    has(&all, &["claim bytes/source", &source.name])?;

    let of = json!({ "source": { "persistentVolumeClaimName": "source" } });
    world.create(SNAPSHOT, "dusk", json!({ "spec": of })).await?;
    let snapshot = world.ready("dusk").await?;
    let dusk =
        json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "dusk" });
    world.create(CLAIM, "restored", copy("local", SIZE, dusk)).await?;
    let source_claim = json!({ "kind": "PersistentVolumeClaim", "name": "source" });
    world.create(CLAIM, "cloned", copy("local", SIZE, source_claim)).await?;
    world.run("restored", "restored", READ).await?;
    world.run("cloned", "cloned", READ).await?;
    world.says("restored", &written, same).await?;
    world.says("cloned", &written, same).await?;
    let [restored, cloned] = [world.bound("restored").await?, world.bound("cloned").await?];
    let made = [source, snapshot, restored, cloned];
    wait_for(PATIENCE, "nothing to wait for anything", || async {
        world.status(&[]).await.ok()?.contains("Nothing waits").then_some(())
    })
    .await?;

    // A claim in use stays until its pod has gone.
    world.delete(CLAIM, "source").await?;
    has(&world.why("source").await?, &["Terminating", "pods still use it: writer"])?;
    for pod in ["writer", "restored", "cloned"] {
        world.end_pod(pod).await?;
    }
    world.gone(CLAIM, "source").await?;
    world.delete(CLAIM, "restored").await?;
    world.delete(CLAIM, "cloned").await?;
    world.delete(SNAPSHOT, "dusk").await?;
    world.gone(SNAPSHOT, "dusk").await?;
    world.nothing_left(&made).await?;
    world.end().await
}

/// The volume is on the node, by an attachment of it.
async fn attached(world: &World, volume: &str) -> Result<()> {
    let object = world.get(VOLUME, volume).await?.context("the volume")?;
    let terms = &object["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    ensure!(
        terms[0]["matchExpressions"][0]["values"] == json!([world.rig.cluster.node()]),
        "{object:#}"
    );
    let attachments = world.list(ATTACHMENT).await?;
    let own = attachments.iter().find(|it| it["spec"]["source"]["persistentVolumeName"] == volume);
    let own = own.context("a VolumeAttachment")?;
    ensure!(own["status"]["attached"] == true, "{own:#}");
    Ok(())
}

/// What the pods print.
fn digest() -> String {
    digest_of(&(1..=200_000).map(|number| format!("{number}\n")).collect::<String>())
}

/// As `sha256sum` prints it.
pub(crate) fn digest_of(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
