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
    let (disk, pool) = (bench.path("disk"), bench.pool());
    std::fs::create_dir(&pool).unwrap();
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
