//! A pool whose disk dies under staged volumes.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tonic::Code;
use wharf_mount::{loopdev, mount, mountinfo};
use wharf_testkit::process;

use super::{
    SIZE, fill, made_on,
    orphans::{image_names, loops_of},
    two_pools,
};
use crate::{
    bench::{Bench, MIB, PoolKind, loops_below, needs},
    client::{Usage, block, mounted, volume},
    codes::refused,
    full::mount_pool,
    running::PATIENCE,
};

/// Mounts XFS where the pool will be.
pub(super) fn mount_xfs(bench: &Bench) {
    std::fs::create_dir(bench.pool()).unwrap();
    mount_new_disk(bench, "disk");
}

/// Mounts a new XFS where the pool is.
fn mount_new_disk(bench: &Bench, name: &str) {
    let (disk, pool) = (bench.path(name), bench.pool());
    std::fs::File::create(&disk).unwrap().set_len(512 * MIB).unwrap();
    run("mkfs.xfs -q", &[&disk]);
    run("mount -o loop", &[&disk, &pool]);
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

    // Its folder is the driver's for as long as it serves the pool, although nothing can be written
    // any more.
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

/// Runs a program of the machine, which has to succeed.
fn run(command: &str, paths: &[&Path]) -> String {
    let mut words = command.split(' ');
    let mut program = Command::new(words.next().unwrap());
    let output = program.args(words).args(paths).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_disk_that_came_back_as_another_device_are_unstaged_and_staged_again() {
    if needs(&["mkfs.xfs", "xfs_io"]).is_none() {
        return;
    }
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_xfs(&bench);
    let driver = bench.start().await;
    let mut used = Vec::new();
    for (name, capability) in [("file", mounted("")), ("raw", block())] {
        let made = driver.create(volume(name, SIZE, capability.clone())).await.unwrap();
        let usage = Usage::new(&bench, name, &made.volume_id, capability);
        driver.bring_up(&usage).await.unwrap();
        used.push(usage);
    }
    let images: Vec<_> = bench.rows().into_iter().map(|row| row.image).collect();
    let names: Vec<_> = images.iter().map(|image| image.file_name().unwrap()).collect();
    let loops = || {
        let all = loopdev::list().unwrap().into_iter().map(|status| status.loopdev.backing);
        all.filter(|backing| names.iter().any(|name| backing.ends_with(name))).count()
    };
    kill_disk(&bench).await;
    mount::lazy_unmount(&bench.pool()).unwrap();
    let device = run("losetup --find --show", &[&bench.path("disk")]);
    run("mount -o nouuid", &[Path::new(&device), &bench.pool()]);
    driver.kill().await;

    let driver = bench.start().await;
    for usage in &used {
        driver.take_down(usage).await.unwrap();
        assert_eq!(mountinfo::root_at(&usage.staging).unwrap(), None, "{:?}", usage.staging);
        assert!(!usage.target.exists());
    }
    assert_eq!(loops(), 0, "a loop device of the dead disk is left");
    for usage in &used {
        driver.bring_up(usage).await.unwrap();
        driver.take_down(usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_dead_disk_that_is_gone_at_the_next_start_are_taken_from_their_pods() {
    if needs(&["mkfs.xfs", "xfs_io"]).is_none() {
        return;
    }
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_xfs(&bench);
    let driver = bench.start().await;
    let mut used = Vec::new();
    for (name, size, capability) in
        [("file", SIZE, mounted("")), ("xfs", 300 * MIB, mounted("xfs")), ("raw", SIZE, block())]
    {
        let made = driver.create(volume(name, size, capability.clone())).await.unwrap();
        let usage = Usage::new(&bench, name, &made.volume_id, capability);
        driver.bring_up(&usage).await.unwrap();
        used.push(usage);
    }
    let images: Vec<_> = bench.rows().into_iter().map(|row| row.image).collect();
    let names: Vec<_> = images.iter().map(|image| image.file_name().unwrap()).collect();
    // The filesystems on it notice, too.
    crate::bytes::write(&used[0].file("data"), &[1; 4096]);
    crate::bytes::write(&used[1].file("data"), &[1; 4096]);
    kill_disk(&bench).await;
    run("xfs_io -x -c shutdown", &[&used[1].staging]);
    mount::lazy_unmount(&bench.pool()).unwrap();
    driver.kill().await;

    let driver = bench.start().await;
    for usage in &used {
        driver.take_down(usage).await.unwrap();
        assert_eq!(mountinfo::root_at(&usage.staging).unwrap(), None, "{:?}", usage.staging);
        assert!(!usage.target.exists());
    }
    let left = loopdev::list().unwrap().into_iter().map(|status| status.loopdev.backing);
    let left: Vec<_> = left.filter(|it| names.iter().any(|name| it.ends_with(name))).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "a loop device is left");
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unstage_is_refused_while_something_else_is_mounted_over_the_volume() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let made = driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    let usage = Usage::new(&bench, "a", &made.volume_id, mounted(""));
    driver.stage(&usage).await.unwrap();
    run("mount -t tmpfs foreign", &[&usage.staging]);
    for _ in 0..2 {
        let text = refused("unstage", driver.unstage(&usage).await, Code::Internal);
        assert!(text.contains("unmount it by hand"), "{text}");
    }
    mount::unmount(&usage.staging).unwrap();
    driver.unstage(&usage).await.unwrap();
    assert_eq!(mountinfo::root_at(&usage.staging).unwrap(), None);
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_undone_on_a_dead_disk_is_undone_once_it_is_mounted_again() {
    if needs(&["e2fsck"]).is_none() {
        return;
    }
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let mut used = Vec::new();
    for (name, capability) in [("file", mounted("")), ("raw", block())] {
        let made = driver.create(volume(name, SIZE, capability.clone())).await.unwrap();
        let usage = Usage::new(&bench, name, &made.volume_id, capability);
        driver.bring_up(&usage).await.unwrap();
        used.push(usage);
    }
    let (disk, _) = loops_below(&bench.path("disk.img")).remove(0);
    // What ext4 does when its disk fails.
    run("mount -o remount,abort", &[&bench.pool()]);
    for usage in &used {
        driver.take_down(usage).await.unwrap();
    }
    assert_eq!(loops_below(&bench.pool()), [], "a loop device is left");
    // The driver holds the pool's folder for as long as it serves the pool.
    driver.stop().await;
    mount::unmount(&bench.pool()).unwrap();
    let checked = Command::new("e2fsck").arg("-fy").arg(&disk.path).output().unwrap();
    assert!(checked.status.code().unwrap() < 4, "{checked:?}");
    run("mount", &[&disk.path, &bench.pool()]);

    let driver = bench.start().await;
    driver.delete(&used[1].id).await.unwrap();
    driver.unstage(&used[0]).await.unwrap();
    driver.bring_up(&used[0]).await.unwrap();
    driver.take_down(&used[0]).await.unwrap();
    driver.delete(&used[0].id).await.unwrap();
    assert_eq!(driver.list().await.unwrap(), Vec::<String>::new());
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_stage_does_not_forget_the_device_of_the_old_disk() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let made = driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    let usage = Usage::new(&bench, "a", &made.volume_id, mounted(""));
    driver.bring_up(&usage).await.unwrap();
    let names = image_names(&bench.pool());
    driver.stop().await;
    run("sync -f", &[&bench.pool()]);
    mount::lazy_unmount(&bench.pool()).unwrap();
    run("cp --sparse=always", &[&bench.path("disk.img"), &bench.path("copy.img")]);
    run("mount -o loop", &[&bench.path("copy.img"), &bench.pool()]);

    let driver = bench.start().await;
    let text = refused("stage", driver.stage(&usage).await, Code::FailedPrecondition);
    assert!(text.contains("was replaced"), "{text}");
    driver.kill().await;
    let driver = bench.start().await;
    driver.take_down(&usage).await.unwrap();
    assert_eq!(mountinfo::root_at(&usage.staging).unwrap(), None);
    assert_eq!(loops_of(&names), Vec::<PathBuf>::new(), "a loop device is left");
    driver.bring_up(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
}

/// The only pool: a driver that ends with its disk would leave the pods on it as they are.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_whose_only_disk_takes_no_writes_starts_and_takes_pods_down() {
    if needs(&["mkfs.ext4"]).is_none() {
        return;
    }
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (disk, pool) = (bench.path("disk"), bench.pool());
    std::fs::create_dir(&pool).unwrap();
    std::fs::File::create(&disk).unwrap().set_len(256 * MIB).unwrap();
    run("mkfs.ext4 -q", &[&disk]);
    run("mount -o loop,errors=remount-ro", &[&disk, &pool]);
    let driver = bench.start().await;
    let made = driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    let usage = Usage::new(&bench, "a", &made.volume_id, mounted(""));
    driver.bring_up(&usage).await.unwrap();
    driver.kill().await;
    // ext4 turns read-only after an error.
    let device = mountinfo::at(&pool).unwrap().unwrap().source;
    let name = device.rsplit('/').next().unwrap().to_owned();
    std::fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").unwrap();
    std::fs::write(pool.join("file"), "").expect_err("the disk takes writes");

    let driver = bench.start().await;
    let said = refused("a write", driver.delete(&usage.id).await, Code::Unavailable);
    assert!(said.contains("cannot be read or written"), "{said}");
    assert!(!said.contains("rebuild"), "{said}");
    driver.unpublish(&usage).await.unwrap();
    driver.unstage(&usage).await.unwrap();
    assert!(mountinfo::root_at(&usage.staging).unwrap().is_none(), "still staged");
    driver.stop().await;
    // What was never served is a mistake of whoever configured it.
    std::fs::remove_dir_all(bench.path("state")).unwrap();
    let output = bench.command(&[]).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
}
