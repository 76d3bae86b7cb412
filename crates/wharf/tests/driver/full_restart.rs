//! Pools on disks that are full to the last block or inode when the driver starts: they are served,
//! and volumes deleted.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::Command,
};

use crate::{
    bench::{Bench, MIB, PoolKind},
    client::{mounted, volume},
    full::mount_pool,
    running::Running,
};

const SIZE: u64 = 16 * MIB;
/// Small files that take what is left after the last whole block.
const SMALL_FILES: usize = 2000;

/// A bench whose pool has a disk of its own.
fn on_disk(pool: PoolKind) -> Option<Bench> {
    let bench = Bench::with_thin(pool)?.flag("--floor", "1Mi");
    if pool == PoolKind::Copy {
        mount_pool(&bench);
    }
    Some(bench)
}

/// Writes until nothing fits on the disk.
fn fill(folder: &Path) {
    let mut file = File::options().create(true).append(true).open(folder.join("filler")).unwrap();
    for size in [MIB, 4096, 512] {
        let block = vec![0xff; usize::try_from(size).unwrap()];
        while file.write_all(&block).and_then(|()| file.sync_data()).is_ok() {}
    }
    for number in 0..SMALL_FILES {
        let written = fs::write(folder.join(format!("small-{number}")), "x");
        if written.is_err() {
            break;
        }
    }
    // The last of it may be refused, too.
    let _ = rustix::fs::syncfs(&file);
}

async fn two_volumes(driver: &Running) -> Vec<String> {
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        ids.push(driver.create(volume(name, SIZE, mounted(""))).await.unwrap().volume_id);
    }
    ids.sort();
    ids
}

#[track_caller]
fn assert_listed(driver: &Running, listed: &[String], expected: &[String], what: &str) {
    assert_eq!(listed, expected, "{what}: {}", driver.tail());
}

async fn a_full_pool_is_served_after_restarts(pool: PoolKind) {
    let Some(bench) = on_disk(pool) else { return };
    let mut driver = bench.start().await;
    let ids = two_volumes(&driver).await;
    for round in ["first", "second", "third"] {
        fill(&bench.images());
        driver.kill().await;
        driver = bench.start().await;
        let listed = driver.list().await.unwrap();
        assert_listed(&driver, &listed, &ids, &format!("{round} start"));
    }
    for id in &ids {
        driver.delete(id).await.unwrap_or_else(|status| panic!("{status}: {}", driver.tail()));
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_on_ext4_is_served_after_a_restart_and_its_volumes_are_deleted() {
    a_full_pool_is_served_after_restarts(PoolKind::Copy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_image_is_served_after_a_restart_and_its_volumes_are_deleted() {
    a_full_pool_is_served_after_restarts(PoolKind::Reflink(400)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_on_btrfs_is_served_after_a_restart_and_its_volumes_are_deleted() {
    a_full_pool_is_served_after_restarts(PoolKind::Btrfs(512)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_free_inodes_is_served_after_a_restart_and_its_volumes_are_deleted() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (disk, pool) = (bench.path("disk"), bench.pool());
    fs::create_dir(&pool).unwrap();
    File::create(&disk).unwrap().set_len(256 * MIB).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-N", "64"]).arg(&disk).status().unwrap();
    let mounted = Command::new("mount").args(["-o", "loop"]).args([&disk, &pool]).status().unwrap();
    assert!(made.success() && mounted.success());
    let bench = bench.flag("--floor", "1Mi");
    let driver = bench.start().await;
    let ids = two_volumes(&driver).await;
    let taken =
        (0..SMALL_FILES).find(|number| File::create(pool.join(format!("{number}"))).is_err());
    assert!(taken.is_some(), "inodes are left");
    driver.kill().await;
    let driver = bench.start().await;
    let listed = driver.list().await.unwrap();
    assert_listed(&driver, &listed, &ids, "no inodes");
    for id in &ids {
        driver.delete(id).await.unwrap();
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_file_that_is_lost_on_a_full_pool_is_rebuilt() {
    for pool in [PoolKind::Copy, PoolKind::Btrfs(512)] {
        let Some(bench) = on_disk(pool) else { return };
        let driver = bench.start().await;
        let ids = two_volumes(&driver).await;
        driver.kill().await;
        drop(File::create(bench.images().join("state.redb")).unwrap());
        fill(&bench.images());
        let driver = bench.start().await;
        let listed = driver.list().await.unwrap();
        assert_listed(&driver, &listed, &ids, &format!("{pool:?}"));
        assert!(!bench.images().join("state.redb.new").exists(), "{pool:?}");
        for id in &ids {
            driver.delete(id).await.unwrap();
        }
        driver.stop().await;
    }
}

/// Without ballast there is no room for a state file: its beginning takes none from others, and
/// nobody is told to rebuild it.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_file_that_cannot_be_made_on_a_full_pool_leaves_nothing_and_says_why() {
    let Some(bench) = on_disk(PoolKind::Copy) else { return };
    let fast = format!("fast={}", bench.path("fast").display());
    let bench = bench.flag("--pool", fast);
    let driver = bench.start().await;
    let ids = two_volumes(&driver).await;
    driver.kill().await;
    drop(File::create(bench.images().join("state.redb")).unwrap());
    fs::remove_file(bench.images().join("ballast")).unwrap();
    fill(&bench.images());
    let driver = bench.start().await;
    let said = driver.delete(&ids[0]).await.unwrap_err();
    assert!(said.message().contains("the disk is full"), "{said}");
    assert!(!said.message().contains("rebuild"), "{said}");
    assert!(!bench.images().join("state.redb.new").exists());
    driver.stop().await;
}
