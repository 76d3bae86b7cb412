//! Full pools, and pools that refuse writes.

use std::{
    fs::File,
    io::{ErrorKind, Write},
    path::Path,
    process::Command,
};

use tonic::Code;
use wharf_driver::inspect::PoolUsage;
use wharf_mount::{
    Filesystem, format, freeze,
    loopdev::{self, LoopOptions},
    mount::{self, MountOptions},
    space,
};
use wharf_proto::csi;
use wharf_testkit::process::wait_for;

use crate::{
    bench::{Bench, MIB, PoolKind},
    bytes::{bytes, checksum, checksum_of, read, write},
    client::{Usage, block, map, mounted, volume},
    codes::refused,
    running::{PATIENCE, Running},
};

const SIZE: u64 = 16 * MIB;
const DATA: u64 = MIB / 4;
/// About the smallest XFS there is.
const POOL: PoolKind = PoolKind::Reflink(512);
/// What the state file and the filesystem itself may take meanwhile.
const OVERHEAD: u64 = 16 * MIB;

async fn made(bench: &Bench, driver: &Running, name: &str, size: u64) -> Usage {
    let id = driver.create(volume(name, size, mounted(""))).await.unwrap().volume_id;
    Usage::new(bench, name, &id, mounted(""))
}

fn full_of(byte: u8, size: u64) -> Vec<u8> {
    vec![byte; usize::try_from(size).unwrap()]
}

/// Waits until the pool can promise as much as before: XFS gives the blocks of deleted files back
/// when it finds time.
async fn regains(driver: &Running, capacity: u64) {
    wait_for(PATIENCE, "the capacity of before", async || {
        (driver.capacity().await.unwrap() >= capacity - OVERHEAD).then_some(())
    })
    .await
    .unwrap();
}

/// Brings the pool's filesystem to rest: what XFS still has to give back of deleted files is given
/// back by a freeze.
fn settle(bench: &Bench) {
    freeze::freeze(&bench.images()).unwrap().thaw().unwrap();
}

/// Writes blocks until an error, and gives that.
pub(crate) fn fill(path: &Path) -> std::io::Error {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    let block = vec![0xff; usize::try_from(MIB).unwrap()];
    loop {
        if let Err(error) = file.write_all(&block).and_then(|()| file.sync_data()) {
            return error;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_capacity_says_can_be_had_and_no_byte_more() {
    let Some(bench) = Bench::new(POOL) else { return };
    let driver = bench.start().await;
    settle(&bench);
    let capacity = driver.capacity().await.unwrap();
    assert!(capacity > 300 * MIB, "{capacity}");
    let more = driver.create(volume("more", capacity + 4096, mounted(""))).await;
    let said = refused("more", more, Code::ResourceExhausted);
    assert!(said.contains(&capacity.to_string()), "{said}");
    let all = made(&bench, &driver, "all", capacity).await;
    assert_eq!(driver.capacity().await.unwrap(), 0);
    let next = driver.create(volume("next", SIZE, mounted(""))).await;
    refused("next", next, Code::ResourceExhausted);
    refused("snapshot", driver.snapshot("s", &all.id).await, Code::ResourceExhausted);
    refused("expand", driver.expand(&all.id, capacity + SIZE).await, Code::OutOfRange);
    driver.delete(&all.id).await.unwrap();
    regains(&driver, capacity).await;
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_past_a_volumes_size_fails_and_no_neighbour_loses_a_byte() {
    for pool in [PoolKind::Copy, POOL] {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let (a, b) =
            (made(&bench, &driver, "a", SIZE).await, made(&bench, &driver, "b", SIZE).await);
        for (seed, usage) in [(1, &a), (2, &b)] {
            driver.bring_up(usage).await.unwrap();
            write(&usage.file("data"), &bytes(seed, DATA));
        }
        let error = fill(&a.file("filler"));
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        for (seed, usage) in [(1, &a), (2, &b)] {
            driver.take_down(usage).await.unwrap();
            driver.bring_up(usage).await.unwrap();
            assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(seed, DATA)));
        }
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_takes_as_much_capacity_as_overwriting_its_volume_would() {
    let Some(bench) = Bench::new(POOL) else { return };
    let driver = bench.start().await;
    let size = 64 * MIB;
    let usage = made(&bench, &driver, "a", size).await;
    let before = driver.capacity().await.unwrap();
    let snapshot = driver.snapshot("s", &usage.id).await.unwrap().snapshot_id;
    let after = driver.capacity().await.unwrap();
    assert!(before - after >= size, "{before} - {after}");
    driver.delete_snapshot(&snapshot).await.unwrap();
    regains(&driver, before).await;
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thick_volume_is_overwritten_whole_after_a_snapshot_of_a_full_pool() {
    let Some(bench) = Bench::new(POOL) else { return };
    let driver = bench.start().await;
    let size = 64 * MIB;
    let device = async |name: &str, size| {
        let id = driver.create(volume(name, size, block())).await.unwrap().volume_id;
        let usage = Usage::new(&bench, name, &id, block());
        driver.bring_up(&usage).await.unwrap();
        usage
    };
    let usage = device("a", size).await;
    write(&usage.target, &full_of(1, size));
    driver.snapshot("s", &usage.id).await.unwrap();
    let rest = driver.capacity().await.unwrap();
    let filler = device("filler", rest).await;
    // All that was promised is taken up, and only then the shared blocks are written.
    write(&filler.target, &full_of(2, rest));
    write(&usage.target, &full_of(3, size));
    for (seed, usage, size) in [(2, &filler, rest), (3, &usage, size)] {
        driver.take_down(usage).await.unwrap();
        driver.bring_up(usage).await.unwrap();
        let same = read(&usage.target, size) == full_of(seed, size);
        assert!(same, "{}", usage.target.display());
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_deleted_from_a_pool_that_others_filled() {
    let Some(bench) = Bench::new(POOL) else { return };
    let driver = bench.start().await;
    let usage = made(&bench, &driver, "a", SIZE).await;
    let snapshot = driver.snapshot("s", &usage.id).await.unwrap().snapshot_id;
    let capacity = driver.capacity().await.unwrap();
    assert_eq!(driver.storage_health().await.unwrap(), Vec::<String>::new());
    let foreign = bench.images().join("foreign");
    assert_eq!(fill(&foreign).kind(), ErrorKind::StorageFull);
    assert_eq!(driver.capacity().await.unwrap(), 0);
    assert_eq!(driver.storage_health().await.unwrap(), ["StorageDegraded PoolNearlyFull"]);
    refused("b", driver.create(volume("b", SIZE, mounted(""))).await, Code::ResourceExhausted);
    // A volume that is there already can be used: its space is its own.
    driver.bring_up(&usage).await.unwrap();
    write(&usage.file("data"), &bytes(1, DATA));
    driver.take_down(&usage).await.unwrap();
    driver.delete_snapshot(&snapshot).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
    std::fs::remove_file(&foreign).unwrap();
    regains(&driver, capacity).await;
    assert_eq!(driver.storage_health().await.unwrap(), Vec::<String>::new());
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_tells_that_nothing_can_be_made_thin_or_thick_and_why() {
    let Some(bench) = Bench::new(POOL) else { return };
    let bench = bench.flag("--kinds", "thick,thin");
    let driver = bench.start().await;
    let thin = [("thin", "true")];
    let told = driver.capacity_of(&thin).await.unwrap();
    let largest = u64::try_from(told.maximum_volume_size.unwrap()).unwrap();
    let request = |name: &str, size| csi::CreateVolumeRequest {
        parameters: map(&thin),
        ..volume(name, size, block())
    };
    let made = driver.create(request("largest", largest)).await.unwrap();
    refused("more", driver.create(request("more", largest + 4096)).await, Code::OutOfRange);
    let shown = bench.driver_command("usage", &["--output", "json"]).stdout;
    let shown: Vec<PoolUsage> = serde_json::from_slice(&shown).unwrap();
    let usage = shown[0].usage.as_ref().unwrap();
    assert_eq!((usage.thin_promised, usage.thin_limit), (largest, 10 * usage.total), "{usage:?}");
    assert_eq!(shown[0].pool.kinds, "thick,thin");
    driver.delete(&made.volume_id).await.unwrap();

    let foreign = bench.images().join("foreign");
    assert_eq!(fill(&foreign).kind(), ErrorKind::StorageFull);
    for parameters in [&thin[..], &[]] {
        let told = driver.capacity_of(parameters).await.unwrap();
        assert_eq!(told.available_capacity, 0, "{parameters:?}");
        assert_eq!(told.maximum_volume_size, Some(0), "{parameters:?}");
    }
    let answer = driver.create(request("thin", 16 * MIB)).await;
    let said = refused("thin", answer, Code::ResourceExhausted);
    assert!(said.contains("--floor") && said.contains("delete"), "{said}");
    assert!(!said.contains(" 0 are needed"), "{said}");
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_volume_that_is_told_can_be_created_without_a_floor() {
    for kind in [POOL, PoolKind::Copy, PoolKind::Btrfs(512)] {
        let Some(bench) = Bench::new(kind) else { return };
        if kind == PoolKind::Copy {
            mount_pool(&bench);
        }
        let bench = bench.flag("--floor", "0");
        let driver = bench.start().await;
        for round in 0..3 {
            // Pieces that are freed in between leave the filesystem with more to remember.
            let mut small = Vec::new();
            for number in 0..12 * round {
                let name = format!("small-{round}-{number}");
                small.push(driver.create(volume(&name, SIZE, block())).await.unwrap().volume_id);
            }
            for id in small.iter().step_by(2) {
                driver.delete(id).await.unwrap();
            }
            let told = driver.capacity_of(&[]).await.unwrap();
            let largest = u64::try_from(told.maximum_volume_size.unwrap()).unwrap();
            let made = driver.create(volume("largest", largest, block())).await;
            let made = made.unwrap_or_else(|error| panic!("{kind:?}, round {round}: {error:?}"));
            driver.delete(&made.volume_id).await.unwrap();
            // btrfs has the space again with its next commit.
            rustix::fs::syncfs(File::open(bench.images()).unwrap()).unwrap();
            for id in small.iter().skip(1).step_by(2) {
                driver.delete(id).await.unwrap();
            }
        }
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_a_copy_takes_its_space_once() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let size = 64 * MIB;
    let id = driver.create(volume("a", size, block())).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, block());
    driver.bring_up(&usage).await.unwrap();
    write(&usage.target, &full_of(1, size));
    driver.take_down(&usage).await.unwrap();
    let before = driver.capacity().await.unwrap();
    driver.snapshot("s", &id).await.unwrap();
    let capacity = driver.capacity().await.unwrap();
    let taken = before - capacity;
    assert!((size..size + OVERHEAD).contains(&taken), "{before} - {capacity} = {taken}");

    let told = driver.capacity_of(&[]).await.unwrap();
    assert_eq!(told.maximum_volume_size, Some(told.available_capacity));
    let more = driver.create(volume("more", capacity + 4096, block())).await;
    refused("more", more, Code::ResourceExhausted);
    driver.create(volume("all", capacity, block())).await.unwrap();
    driver.stop().await;
}

/// An ext4 of its own for the pool; its loop device goes with the bench.
pub(crate) fn mount_pool(bench: &Bench) {
    mount_pool_of(bench, 512 * MIB);
}

/// Mounts a disk of its own where the pool is, with its space allocated: other tests fill the
/// machine's disk meanwhile.
pub(crate) fn mount_pool_of(bench: &Bench, size: u64) {
    let image = bench.path("disk.img");
    if !image.exists() {
        let file = File::create_new(&image).unwrap();
        space::allocate(&file, size, true).unwrap();
        let limit = std::time::Duration::from_secs(60);
        format::format(Filesystem::Ext4, &image, &format::FormatOptions::default(), limit).unwrap();
    }
    std::fs::create_dir_all(bench.pool()).unwrap();
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let device = loopdev::attach(&file, &LoopOptions::default()).unwrap();
    let (target, options) = (bench.pool(), MountOptions::default());
    mount::mount(&device.path, &target, Filesystem::Ext4, &options).unwrap();
}

fn remount(bench: &Bench, option: &str) {
    let mut command = Command::new("mount");
    let status = command.args(["-o", &format!("remount,{option}")]).arg(bench.pool()).status();
    assert!(status.unwrap().success(), "{option}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_stopped_after_an_error_says_so_and_goes_on_once_it_is_mounted_anew() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let usage = made(&bench, &driver, "a", SIZE).await;
    driver.bring_up(&usage).await.unwrap();
    write(&usage.file("data"), &bytes(1, DATA));
    driver.take_down(&usage).await.unwrap();

    // What ext4 does when its disk fails.
    remount(&bench, "abort");
    let status = driver.create(volume("b", SIZE, mounted(""))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("Read-only file system"), "{status}");
    assert_eq!(driver.storage_health().await.unwrap(), ["StorageUnreachable PoolReadOnly"]);
    assert_eq!(driver.list().await.unwrap(), std::slice::from_ref(&usage.id));
    assert_eq!(driver.capacity().await.unwrap(), 0, "nothing can be created");
    driver.kill().await;
    bench.reboot();

    mount_pool(&bench);
    let driver = bench.start().await;
    assert_eq!(driver.storage_health().await.unwrap(), Vec::<String>::new());
    driver.bring_up(&usage).await.unwrap();
    assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(1, DATA)));
    made(&bench, &driver, "b", SIZE).await;
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_read_only_at_a_start_is_served_once_it_can_be_written() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let usage = made(&bench, &driver, "a", SIZE).await;
    driver.stop().await;
    remount(&bench, "ro");
    let driver = bench.start().await;
    let said = refused("a read-only pool", driver.delete(&usage.id).await, Code::Unavailable);
    assert!(said.contains("Read-only file system"), "{said}");
    remount(&bench, "rw");
    wait_for(PATIENCE, "the pool to be served", async || driver.bring_up(&usage).await.ok())
        .await
        .unwrap();
    driver.stop().await;
}
