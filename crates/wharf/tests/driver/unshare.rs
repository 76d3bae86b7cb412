//! Thick volumes whose blocks were shared with a copy: the copy gets blocks of its own, and no writer runs out of space.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tonic::Code;
use wharf_csi_sdk::fault::FaultPoint;
use wharf_driver::points::Point;
use wharf_driver::pool::{Pool, PoolOptions, PoolSettings, UnshareStep};
use wharf_mount::{space, unshare};
use wharf_proto::csi;
use wharf_testkit::process::wait_for;

use crate::bench::{Bench, MIB, PoolKind};
use crate::bytes::{bytes, checksum, checksum_of, write};
use crate::client::{Usage, block, from_snapshot, from_volume, map, mounted, volume};
use crate::codes::refused;
use crate::running::{PATIENCE, Running};

const SIZE: u64 = 96 * MIB;
/// More than two stretches of those that are moved at a time.
const DATA: u64 = 20 * MIB;
const POOL: PoolKind = PoolKind::Reflink(600);

/// A pool that allows thin volumes, so that blocks must not stay shared.
fn bench() -> Option<Bench> {
    Some(Bench::new(POOL)?.flag("--kinds", "thick,thin"))
}

async fn made(bench: &Bench, driver: &Running, request: csi::CreateVolumeRequest) -> Usage {
    let (name, capability) = (request.name.clone(), request.volume_capabilities[0].clone());
    let id = driver.create(request).await.unwrap().volume_id;
    Usage::new(bench, &name, &id, capability)
}

fn thin(name: &str, size: u64) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest { parameters: map(&[("thin", "true")]), ..volume(name, size, block()) }
}

/// Waits until `pool ls` shows no copy that is still being unshared.
async fn unshared(bench: &Bench) {
    wait_for(PATIENCE, "the end of all unsharing", async || {
        bench.rows().iter().all(|row| !row.state.contains("unsharing")).then_some(())
    })
    .await
    .unwrap();
}

/// Bytes of an image that lie in blocks of other files, too.
fn shared(image: &Path) -> u64 {
    let file = File::open(image).unwrap();
    let size = file.metadata().unwrap().len();
    unshare::length(&unshare::shared(&file, 0..size).unwrap())
}

/// A foreign file on the pool's disk.
struct Foreign {
    path: PathBuf,
    file: File,
}

impl Foreign {
    /// On a full disk no file can be created.
    fn create(bench: &Bench) -> Self {
        let path = bench.images().join("foreign");
        let file = File::create(&path).unwrap();
        Self { path, file }
    }

    /// Takes all that is left of the pool.
    fn fill(&self) {
        let mut size = self.file.metadata().unwrap().len();
        for step in [16 * MIB, MIB, 4096] {
            while space::allocate(&self.file, size + step, true).is_ok() {
                size += step;
            }
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.file.set_len(0).unwrap();
        std::fs::remove_file(&self.path).unwrap();
    }
}

/// Writes to a device until an error.
fn fill_device(path: &Path) {
    let mut file = File::options().write(true).open(path).unwrap();
    let block = vec![0xee; usize::try_from(MIB).unwrap()];
    while file.write_all(&block).and_then(|()| file.sync_data()).is_ok() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thick_volume_with_a_snapshot_is_overwritten_on_a_pool_that_others_filled() {
    let Some(bench) = bench() else { return };
    let driver = bench.start().await;
    let usage = made(&bench, &driver, volume("thick", SIZE, mounted("ext4"))).await;
    let device = made(&bench, &driver, volume("device", DATA, block())).await;
    for (usage, path) in [(&usage, usage.file("data")), (&device, device.target.clone())] {
        driver.bring_up(usage).await.unwrap();
        write(&path, &bytes(1, DATA));
    }
    let snapshot = driver.snapshot("snapshot", &usage.id).await.unwrap().snapshot_id;
    let of_device = driver.snapshot("of-device", &device.id).await.unwrap().snapshot_id;
    let on_thin = thin("thin-clone", SIZE);
    let on_thin =
        csi::CreateVolumeRequest { volume_content_source: from_volume(&device.id), ..on_thin };
    let thin_clone = made(&bench, &driver, on_thin).await;
    unshared(&bench).await;

    let filler = made(&bench, &driver, thin("thin", 500 * MIB)).await;
    driver.bring_up(&filler).await.unwrap();
    let foreign = Foreign::create(&bench);
    fill_device(&filler.target);
    foreign.fill();
    let discarded = Command::new("blkdiscard").arg(&device.target).status().unwrap();
    assert!(!discarded.success(), "a thick volume gave its space back");
    for seed in 2..4 {
        for path in [&usage.file("data"), &device.target] {
            write(path, &bytes(seed, DATA));
            assert_eq!(checksum_of(path, DATA), checksum(&bytes(seed, DATA)));
        }
    }

    driver.take_down(&filler).await.unwrap();
    driver.delete(&filler.id).await.unwrap();
    drop(foreign);
    let restore = csi::CreateVolumeRequest {
        volume_content_source: from_snapshot(&snapshot),
        ..volume("restored", SIZE, mounted("ext4"))
    };
    let restored = made(&bench, &driver, restore).await;
    driver.bring_up(&restored).await.unwrap();
    assert_eq!(checksum_of(&restored.file("data"), DATA), checksum(&bytes(1, DATA)));
    driver.bring_up(&thin_clone).await.unwrap();
    assert_eq!(checksum_of(&thin_clone.target, DATA), checksum(&bytes(1, DATA)));
    for usage in [usage, restored, device, thin_clone] {
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    for snapshot in [snapshot, of_device] {
        driver.delete_snapshot(&snapshot).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}

/// A block volume full of the bytes of a seed, with a caller that may have to call again after a crash.
struct Source<'a> {
    bench: &'a Bench,
    driver: Running,
    usage: Usage,
}

impl<'a> Source<'a> {
    async fn new(bench: &'a Bench, plan: &str) -> Self {
        let driver = bench.start_with(&["--fault", plan]).await;
        let usage = made(bench, &driver, volume("source", DATA, block())).await;
        driver.bring_up(&usage).await.unwrap();
        write(&usage.target, &bytes(1, DATA));
        Self { bench, driver, usage }
    }

    fn request(&self, name: &str) -> csi::CreateVolumeRequest {
        csi::CreateVolumeRequest {
            volume_content_source: from_volume(&self.usage.id),
            ..volume(name, DATA, block())
        }
    }

    /// Waits for the kill, then starts a driver that lives.
    async fn restart(&mut self) {
        self.driver.killed().await.unwrap();
        self.driver = self.bench.start().await;
    }

    /// Brings up a volume, compares its bytes and deletes it.
    async fn holds(&self, usage: &Usage, seed: u64) {
        self.driver.bring_up(usage).await.unwrap();
        assert_eq!(checksum_of(&usage.target, DATA), checksum(&bytes(seed, DATA)));
        self.driver.take_down(usage).await.unwrap();
        self.driver.delete(&usage.id).await.unwrap();
    }

    async fn end(self) {
        self.driver.take_down(&self.usage).await.unwrap();
        self.driver.delete(&self.usage.id).await.unwrap();
        assert_eq!(self.bench.rows(), Vec::new());
        self.driver.stop().await;
        self.bench.assert_empty();
    }
}

fn points() -> impl Iterator<Item = &'static str> {
    let names = Point::ALL.iter().map(|point| point.name());
    names.filter(|name| name.starts_with("Reserve") || name.starts_with("Unshare"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_of_the_unsharing_of_a_snapshot_costs_nothing() {
    let Some(bench) = bench() else { return };
    for point in points() {
        let mut source = Source::new(&bench, &format!("kill:{point}")).await;
        // The call is cut, or its snapshot is cut short in the background.
        let _ = source.driver.snapshot("snapshot", &source.usage.id).await;
        source.driver.killed().await.unwrap();
        // The volume is written also while no driver runs.
        let old = if point.starts_with("Reserve") { 2 } else { 1 };
        write(&source.usage.target, &bytes(2, DATA));
        source.driver = bench.start().await;
        let snapshot = source.driver.snapshot("snapshot", &source.usage.id).await.unwrap();
        unshared(&bench).await;
        for row in bench.rows() {
            assert_eq!(shared(&row.image), 0, "{point}: {row:?}");
        }
        write(&source.usage.target, &bytes(3, DATA));
        let restore = csi::CreateVolumeRequest {
            volume_content_source: from_snapshot(&snapshot.snapshot_id),
            ..volume("restored", DATA, block())
        };
        let restored = made(&bench, &source.driver, restore).await;
        source.holds(&restored, old).await;
        source.driver.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        source.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_of_the_unsharing_of_a_clone_costs_nothing() {
    let Some(bench) = bench() else { return };
    for point in points() {
        let mut source = Source::new(&bench, &format!("kill:{point}")).await;
        let _ = source.driver.create(source.request("clone")).await;
        source.restart().await;
        let clone = made(&bench, &source.driver, source.request("clone")).await;
        // A stage waits until the clone has blocks of its own.
        source.driver.bring_up(&clone).await.unwrap();
        assert_eq!(shared(&bench.rows()[0].image), 0, "{point}");
        write(&source.usage.target, &bytes(2, DATA));
        source.driver.take_down(&clone).await.unwrap();
        source.holds(&clone, 1).await;
        source.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_snapshots_is_unshared_after_a_crash_in_the_middle() {
    let Some(bench) = bench() else { return };
    let driver = bench.start_with(&["--fault", "kill:ReserveMade:2"]).await;
    let mut usages = Vec::new();
    for name in ["a", "b"] {
        let usage = made(&bench, &driver, volume(name, SIZE, mounted("ext4"))).await;
        driver.bring_up(&usage).await.unwrap();
        write(&usage.file("data"), &bytes(1, DATA));
        usages.push(usage);
    }
    let ids: Vec<_> = usages.iter().map(|usage| usage.id.as_str()).collect();
    let mut driver = driver;
    driver.group("group", &ids).await.unwrap_err();
    driver.killed().await.unwrap();
    let driver = bench.start().await;
    let group = driver.group("group", &ids).await.unwrap();
    unshared(&bench).await;
    for row in bench.rows() {
        assert_eq!(shared(&row.image), 0, "{row:?}");
    }
    driver.delete_group(&group).await.unwrap();
    for usage in usages {
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_says_how_far_it_has_come_and_is_not_staged_before_its_end() {
    let Some(bench) = bench() else { return };
    let mut source = Source::new(&bench, "kill:UnshareShortened").await;
    let _ = source.driver.create(source.request("clone")).await;
    source.driver.killed().await.unwrap();
    let row = bench.rows().into_iter().find(|row| row.name == "clone").unwrap();
    assert!(row.state.starts_with("ready, unsharing ") && row.state.ends_with(" %"), "{row:?}");
    assert_ne!(row.state, "ready, unsharing 0 %");

    // Without a driver nobody goes on with it, and how far it gets is up to this test.
    let settings = PoolSettings { kinds: "thick,thin".parse().unwrap(), ..Default::default() };
    let options = PoolOptions { settings, ..Default::default() };
    let (pool, _) = Pool::open(&bench.images(), options).unwrap();
    let left = pool.unsharing_left();
    assert!(0 < left && left < DATA, "{left}");
    let said = pool.await_unshared(&row.id, Duration::ZERO).unwrap_err().to_string();
    assert!(said.contains(&row.id) && said.contains(&left.to_string()), "{said}");
    while let UnshareStep::Moved(_) = pool.unshare_step() {}
    assert_eq!(pool.unshare_step(), UnshareStep::Idle);
    assert_eq!(pool.unsharing_left(), 0);
    pool.await_unshared(&row.id, Duration::ZERO).unwrap();
    drop(pool);

    source.driver = bench.start().await;
    let clone = Usage::new(&bench, "clone", &row.id, block());
    source.holds(&clone, 1).await;
    source.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_shared_is_unshared_once_the_pool_allows_thin_volumes() {
    let Some(bench) = Bench::new(POOL) else { return };
    let driver = bench.start().await;
    let usage = made(&bench, &driver, volume("source", DATA, block())).await;
    driver.bring_up(&usage).await.unwrap();
    write(&usage.target, &bytes(1, DATA));
    let snapshot = driver.snapshot("snapshot", &usage.id).await.unwrap().snapshot_id;
    let clone = csi::CreateVolumeRequest {
        volume_content_source: from_volume(&usage.id),
        ..volume("clone", DATA, block())
    };
    let clone = made(&bench, &driver, clone).await;
    driver.bring_up(&clone).await.unwrap();
    assert_eq!(shared(&bench.rows()[0].image), DATA, "blocks stay shared where nothing is thin");
    driver.stop().await;

    let driver = bench.start_with(&["--kinds", "thick,thin"]).await;
    // Of two volumes in use, none is unshared before its unstage.
    wait_for(PATIENCE, "the snapshot's own blocks", async || {
        let rows = bench.rows();
        let row = rows.iter().find(|row| row.id == snapshot).unwrap();
        (shared(&row.image) == 0 && !row.state.contains("unsharing")).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(shared(&bench.rows()[0].image), DATA);
    write(&clone.target, &bytes(2, DATA / 2));
    driver.take_down(&clone).await.unwrap();
    wait_for(PATIENCE, "the clone's own blocks", async || {
        bench.rows().iter().all(|row| shared(&row.image) == 0).then_some(())
    })
    .await
    .unwrap();
    driver.bring_up(&clone).await.unwrap();
    assert_eq!(checksum_of(&clone.target, DATA / 2), checksum(&bytes(2, DATA / 2)));
    assert_eq!(checksum_of(&usage.target, DATA), checksum(&bytes(1, DATA)));
    for usage in [clone, usage] {
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.delete_snapshot(&snapshot).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_while_it_is_unshared_leaves_nothing() {
    let Some(bench) = bench() else { return };
    for deleted in ["snapshot", "source"] {
        // A step that fails leaves a copy alone for some seconds.
        let source = Source::new(&bench, "fail:UnsharePinned").await;
        let driver = &source.driver;
        let snapshot = driver.snapshot("snapshot", &source.usage.id).await.unwrap().snapshot_id;
        if deleted == "snapshot" {
            driver.delete_snapshot(&snapshot).await.unwrap();
            assert_eq!(bench.images().join("reserve").read_dir().unwrap().count(), 0);
            source.end().await;
            continue;
        }
        driver.take_down(&source.usage).await.unwrap();
        driver.delete(&source.usage.id).await.unwrap();
        unshared(&bench).await;
        assert_eq!(bench.images().join("reserve").read_dir().unwrap().count(), 0);
        driver.delete_snapshot(&snapshot).await.unwrap();
        source.driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_space_cannot_be_held_leaves_nothing() {
    let Some(bench) = bench() else { return };
    let source = Source::new(&bench, "fail:ReserveMade").await;
    let (driver, id) = (&source.driver, &source.usage.id);
    driver.snapshot("snapshot", id).await.unwrap_err();
    assert_eq!(bench.rows().len(), 1);
    assert_eq!(bench.images().join("reserve").read_dir().unwrap().count(), 0);

    let foreign = Foreign::create(&bench);
    let room = space::usage(&bench.images()).unwrap().available;
    space::allocate(&foreign.file, room - DATA / 2, true).unwrap();
    refused("snapshot", driver.snapshot("snapshot", id).await, Code::ResourceExhausted);
    refused("clone", driver.create(source.request("clone")).await, Code::ResourceExhausted);
    assert_eq!(bench.rows().len(), 1);
    assert_eq!(bench.images().join("reserve").read_dir().unwrap().count(), 0);
    drop(foreign);
    source.end().await;
}
