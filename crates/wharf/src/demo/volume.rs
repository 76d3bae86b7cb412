//! A volume's life: created, attached, staged, published, written, snapshotted, restored, grown,
//! deleted.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use wharf_registration::manager::EventKind;

use super::{
    calls::Calls,
    local::{self, Local},
    node::Node,
    scene::Scene,
    story::unless_stopped,
    traces,
};

const MIB: i64 = 1 << 20;
const SIZE: i64 = 64 * MIB;
const GROWN: i64 = 128 * MIB;
/// Bytes to write: enough to take a while, and too little to fill a volume.
const DATA: u64 = 16 << 20;

/// Plays the volume's life with the local driver. Nothing stays mounted, also after a failure.
pub(super) async fn play(
    scene: &mut Scene<'_>,
    node: &Node,
    folder: &Path,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let local = Local::start(folder).await?;
    let lived = unless_stopped(stop, live(scene, node, &local, folder)).await;
    if lived.is_ok() {
        scene.act("the driver stops");
    }
    let stopped = local.stop().await;
    // After a success nothing may be left, which the check verifies.
    let cleared = if lived.is_ok() { traces::check(folder) } else { traces::clear(folder) };
    lived.and(stopped).and(cleared)?;
    unless_stopped(stop, async {
        scene.expect(&[EventKind::Gone, EventKind::Deregistered]).await?;
        node.drained().await
    })
    .await
}

async fn live(
    scene: &mut Scene<'_>,
    node: &Node,
    local: &Local,
    folder: &Path,
) -> anyhow::Result<()> {
    scene.act(&format!("the local-storage driver starts, on a pool with {}", local.backend()));
    scene.expect(&[EventKind::Seen, EventKind::Validated, EventKind::Registered]).await?;
    let calls = Calls(node.drivers.get(local::NAME).context("the driver is not registered")?);
    let first = Place::new(folder, "first")?;
    let second = Place::new(folder, "second")?;

    scene.act("a volume is created, and mounted for a pod");
    let volume = calls.create("first", SIZE, None).await?;
    scene.done("created", &format!("{volume}, {} MiB", SIZE / MIB));
    mount_for_pod(scene, &calls, &volume, &first).await?;
    let digest = write(&first.file())?;
    scene.done("written", &format!("{} MiB, sha256 {}", DATA >> 20, &digest[..16]));

    scene.act("a snapshot is taken while the pod uses the volume, and the data is lost");
    let snapshot = calls.snapshot("dusk", &volume).await?;
    scene.done("snapshot", &snapshot);
    fs::remove_file(first.file())?;

    scene.act("the snapshot is restored into a second volume");
    let restored = calls.create("second", SIZE, Some(&snapshot)).await?;
    scene.done("restored", &restored);
    mount_for_pod(scene, &calls, &restored, &second).await?;
    verify(scene, &second.file(), &digest)?;

    scene.act("the second volume grows, while ext4 is unmounted");
    let before = calls.total(&restored, &second.target).await?;
    calls.unpublish(&restored, &second.target).await?;
    calls.unstage(&restored, &second.staging).await?;
    calls.expand(&restored, GROWN).await?;
    scene.done("expanded", &format!("from {} MiB to {} MiB", SIZE / MIB, GROWN / MIB));
    calls.stage(&restored, &second.staging).await?;
    calls.publish(&restored, &second.staging, &second.target).await?;
    let after = calls.total(&restored, &second.target).await?;
    ensure!(after > before + SIZE / 2, "the filesystem has {after} bytes, and had {before}");
    scene.done("grown", &format!("its filesystem has {} MiB", after / MIB));
    verify(scene, &second.file(), &digest)?;

    scene.act("all of it is deleted");
    for (volume, place) in [(&volume, &first), (&restored, &second)] {
        calls.unpublish(volume, &place.target).await?;
        calls.unstage(volume, &place.staging).await?;
        calls.detach(volume).await?;
        calls.delete(volume).await?;
        scene.done("deleted", volume);
    }
    calls.delete_snapshot(&snapshot).await?;
    scene.done("deleted", &snapshot);
    ensure!(local.known() == 0, "the driver still knows {} volumes or snapshots", local.known());
    Ok(())
}

/// The paths of a volume: where it is staged, and where it is mounted for its pod.
struct Place {
    staging: PathBuf,
    target: PathBuf,
}

impl Place {
    /// Creates the staging folder and the parent of the target, as the kubelet does.
    fn new(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let (staging, pod) = (folder.join(name).join("staging"), folder.join(name).join("pod"));
        fs::create_dir_all(&staging)?;
        fs::create_dir_all(&pod)?;
        Ok(Self { staging, target: pod.join("data") })
    }

    fn file(&self) -> PathBuf {
        self.target.join("file")
    }
}

async fn mount_for_pod(
    scene: &mut Scene<'_>,
    calls: &Calls,
    volume: &str,
    place: &Place,
) -> anyhow::Result<()> {
    calls.attach(volume).await?;
    scene.done("attached", &format!("to node {}", local::NODE));
    calls.stage(volume, &place.staging).await?;
    scene.done("staged", "ext4 on a loop device");
    calls.publish(volume, &place.staging, &place.target).await?;
    scene.done("published", &place.target.display().to_string());
    Ok(())
}

fn verify(scene: &mut Scene<'_>, file: &Path, expected: &str) -> anyhow::Result<()> {
    let found = digest(file)?;
    ensure!(found == expected, "{} has sha256 {found}, expected {expected}", file.display());
    scene.done("verified", &format!("sha256 {}", &found[..16]));
    Ok(())
}

/// Writes random bytes, and returns their digest.
fn write(path: &Path) -> anyhow::Result<String> {
    // In place: on a separate thread the work would continue after a stop of the demo, and keep the
    // mount busy.
    let written = tokio::task::block_in_place(|| {
        let mut random = File::open("/dev/urandom")?.take(DATA);
        let mut file = File::create(path)?;
        std::io::copy(&mut random, &mut file)?;
        file.sync_all()
    });
    written.with_context(|| format!("writing {}", path.display()))?;
    digest(path)
}

fn digest(path: &Path) -> anyhow::Result<String> {
    let digest = tokio::task::block_in_place(|| anyhow::Ok(Sha256::digest(fs::read(path)?)));
    let digest = digest.with_context(|| format!("reading {}", path.display()))?;
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
