//! A pool whose disk dies under staged volumes.

use std::process::Command;

use tonic::Code;
use wharf_mount::mount;
use wharf_testkit::process;

use super::{SIZE, fill, made_on, two_pools};
use crate::bench::{Bench, MIB, PoolKind, loops_below, needs};
use crate::client::{Usage, block, mounted, volume};
use crate::codes::refused;
use crate::running::PATIENCE;

/// Mounts XFS where the pool will be.
fn mount_xfs(bench: &Bench) {
    std::fs::create_dir(bench.pool()).unwrap();
    mount_new_disk(bench, "disk");
}

/// Mounts a new XFS where the pool is.
fn mount_new_disk(bench: &Bench, name: &str) {
    let (disk, pool) = (bench.path(name), bench.pool());
    std::fs::File::create(&disk).unwrap().set_len(512 * MIB).unwrap();
    for (program, arguments) in [("mkfs.xfs", &["-q"][..]), ("mount", &["-o", "loop"])] {
        let mut command = Command::new(program);
        command.args(arguments).arg(&disk);
        if program == "mount" {
            command.arg(&pool);
        }
        assert!(command.status().unwrap().success(), "{program}");
    }
}

/// What XFS does when its disk fails: every access is an error from then on.
async fn kill_disk(bench: &Bench) {
    let mut shutdown = Command::new("xfs_io");
    process::run(shutdown.args(["-x", "-c", "shutdown"]).arg(bench.pool()), PATIENCE)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_on_a_dead_disk_are_taken_from_their_pods_and_other_pools_work_on() {
    if needs(&["mkfs.xfs", "xfs_io"]).is_none() {
        return;
    }
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    mount_xfs(&bench);
    let driver = bench.start().await;
    let mut used = Vec::new();
    for (name, capability) in [("file", mounted("")), ("raw", block())] {
        let made = driver.create(volume(name, SIZE, capability.clone())).await.unwrap();
        let usage = Usage::new(&bench, name, &made.volume_id, capability);
        driver.bring_up(&usage).await.unwrap();
        used.push(usage);
    }
    let other = made_on(&bench, &driver, "fast", "other").await.unwrap();
    assert_eq!(loops_below(&bench.pool()).len(), used.len());
    kill_disk(&bench).await;

    // Neither this driver nor any other program on the node is kept from its own devices.
    fill(&driver, &other).await;
    for usage in &used {
        driver.take_down(usage).await.unwrap();
        // Asked again, as a kubelet does that did not get the answer.
        driver.take_down(usage).await.unwrap();
    }
    assert_eq!(loops_below(&bench.pool()), [], "a loop device is left");
    let create = driver.create(volume("new", SIZE, mounted(""))).await.map(drop);
    refused("a new volume", create, Code::Unavailable);
    driver.kill().await;

    // The disk is back: all of its volumes are, and none of them is taken for staged.
    mount::unmount(&bench.pool()).unwrap();
    let mut again = Command::new("mount");
    again.args(["-o", "loop"]).arg(bench.path("disk")).arg(bench.pool());
    assert!(again.status().unwrap().success());
    let driver = bench.start().await;
    for usage in &used {
        driver.bring_up(usage).await.unwrap();
        driver.take_down(usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_to_a_disk_that_takes_the_place_of_a_dead_one() {
    if needs(&["mkfs.xfs", "xfs_io"]).is_none() {
        return;
    }
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_xfs(&bench);
    let driver = bench.start().await;
    let made = driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    let usage = Usage::new(&bench, "a", &made.volume_id, mounted(""));
    driver.bring_up(&usage).await.unwrap();
    kill_disk(&bench).await;
    driver.take_down(&usage).await.unwrap();
    let create = driver.create(volume("b", SIZE, mounted(""))).await.map(drop);
    refused("a new volume", create, Code::Unavailable);

    // Its folder is the driver's for as long as it serves the pool, although nothing can be written any more.
    let status = Command::new("umount").arg(bench.pool()).status().unwrap();
    assert!(!status.success(), "the pool's disk was taken from under the driver");
    let status = Command::new("umount").arg("--lazy").arg(bench.pool()).status().unwrap();
    assert!(status.success());
    mount_new_disk(&bench, "other");
    for _ in 0..2 {
        let create = driver.create(volume("b", SIZE, mounted(""))).await.map(drop);
        refused("a new volume", create, Code::Unavailable);
        let delete = driver.delete(&usage.id).await.map(drop);
        refused("the volume of the dead disk", delete, Code::Unavailable);
    }
    let files: Vec<_> = bench.pool().read_dir().unwrap().collect();
    assert!(files.is_empty(), "{files:?} on a disk of somebody else");
    driver.stop().await;
    mount::unmount(&bench.pool()).unwrap();
}
