//! Thick volumes whose blocks were shared with a copy: the copy gets blocks of its own, and no
//! writer runs out of space.

use std::{
    fs::File,
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tonic::Code;
use wharf_driver::{
    node::{InlineLimits, NodeOptions, NodeVolumes},
    pool::{Pool, PoolOptions, PoolSettings, UnshareStep},
};
use wharf_mount::{space, unshare};
use wharf_proto::csi;
use wharf_testkit::process::wait_for;

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    bytes::{bytes, checksum, checksum_of, read, write},
    client::{Usage, block, from_snapshot, from_volume, map, mounted, volume},
    codes::refused,
    running::{PATIENCE, Running},
    unshare_crashes::Source,
};

pub(crate) const SIZE: u64 = 96 * MIB;
/// More than two stretches of those that are moved at a time.
pub(crate) const DATA: u64 = 20 * MIB;
const POOL: PoolKind = PoolKind::Reflink(600);

/// A pool that allows thin volumes, so that blocks must not stay shared.
pub(crate) fn bench() -> Option<Bench> {
    Some(Bench::new(POOL)?.flag("--kinds", "thick,thin"))
}

pub(crate) async fn made(
    bench: &Bench,
    driver: &Running,
    request: csi::CreateVolumeRequest,
) -> Usage {
    let (name, capability) = (request.name.clone(), request.volume_capabilities[0].clone());
    let id = driver.create(request).await.unwrap().volume_id;
    Usage::new(bench, &name, &id, capability)
}

fn thin(name: &str, size: u64) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest { parameters: map(&[("thin", "true")]), ..volume(name, size, block()) }
}

/// Waits until `pool ls` shows no copy that is still being unshared.
pub(crate) async fn unshared(bench: &Bench) {
    wait_for(PATIENCE, "the end of all unsharing", async || {
        bench.rows().iter().all(|row| !row.state.contains("unsharing")).then_some(())
    })
    .await
    .unwrap();
}

/// The pool without a driver, so that how far an unsharing gets is up to the test.
fn without_a_driver(bench: &Bench) -> Pool {
    let settings = PoolSettings { kinds: "thick,thin".parse().unwrap(), ..Default::default() };
    let options = PoolOptions { settings, ..Default::default() };
    Pool::open(&bench.images(), options).unwrap().0
}

/// Bytes of an image that lie in blocks of other files, too.
pub(crate) fn shared(image: &Path) -> u64 {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_says_how_far_it_has_come_and_is_not_staged_before_its_end() {
    let Some(bench) = bench() else { return };
    let mut source = Source::new(&bench, "kill:UnshareShortened").await;
    let _ = source.driver.create(source.request("clone")).await;
    source.driver.killed().await.unwrap();
    let row = bench.rows().into_iter().find(|row| row.name == "clone").unwrap();
    assert!(row.state.starts_with("ready, unsharing ") && row.state.ends_with(" %"), "{row:?}");
    assert_ne!(row.state, "ready, unsharing 0 %");

    let pool = without_a_driver(&bench);
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
async fn nothing_thin_is_created_before_all_copies_have_space_of_their_own() {
    let Some(bench) = Bench::new(POOL) else { return };
    let driver = bench.start().await;
    let (mut sources, mut snapshots) = (Vec::new(), Vec::new());
    for name in ["one", "two", "three", "four"] {
        let usage = made(&bench, &driver, volume(name, 2 * DATA, block())).await;
        driver.bring_up(&usage).await.unwrap();
        write(&usage.target, &bytes(1, 2 * DATA));
        snapshots.push(driver.snapshot(name, &usage.id).await.unwrap().snapshot_id);
        sources.push(usage);
    }
    let (thick, thin_told) = (driver.capacity().await.unwrap(), [("thin", "true")]);
    assert!(thick > 0);
    driver.stop().await;

    let driver = bench.start_with(&["--kinds", "thick,thin", "--thin-floor", "0"]).await;
    let request = thin("thin", 2 * SIZE);
    let taken = wait_for(PATIENCE, "a thin volume", async || {
        let told = driver.capacity_of(&thin_told).await.unwrap().available_capacity;
        match driver.create(request.clone()).await {
            Ok(made) => Some(made.volume_id),
            Err(status) => {
                assert_eq!(status.code(), Code::Aborted, "{status}");
                assert!(status.message().contains("shares blocks"), "{status}");
                assert_eq!(told, 0, "capacity is told although nothing thin can be created");
                None
            }
        }
    });
    let id = taken.await.unwrap();
    let hungry = Usage::new(&bench, "thin", &id, block());
    driver.bring_up(&hungry).await.unwrap();
    let foreign = bench.images().join("foreign");
    crate::full::fill(&foreign);
    unshared(&bench).await;
    for usage in &sources {
        write(&usage.target, &bytes(2, 2 * DATA));
        assert_eq!(checksum_of(&usage.target, 2 * DATA), checksum(&bytes(2, 2 * DATA)));
    }
    std::fs::remove_file(foreign).unwrap();
    for usage in sources.into_iter().chain([hungry]) {
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    for snapshot in snapshots {
        driver.delete_snapshot(&snapshot).await.unwrap();
    }
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

/// A writer that never stops, while snapshots of its volume are cut and unshared: no write fails,
/// none is lost, and no snapshot has a byte that was written after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_goes_on_while_its_snapshots_are_unshared() {
    const BLOCK: u64 = 64 * 1024;
    let Some(bench) = bench() else { return };
    let source = Source::new(&bench, "").await;
    let target = source.usage.target.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    // Each round writes all blocks with its number, in an order that looks random.
    let writer = std::thread::spawn(move || {
        let device = File::options().write(true).open(target).unwrap();
        let blocks = DATA / BLOCK;
        let mut round = 0_u8;
        while !seen.load(Ordering::Relaxed) {
            round = round % 250 + 1;
            for turn in 0..blocks {
                let bytes = vec![round; usize::try_from(BLOCK).unwrap()];
                device.write_all_at(&bytes, turn * 7919 % blocks * BLOCK).unwrap();
            }
            device.sync_all().unwrap();
        }
        round
    });
    let mut snapshots = Vec::new();
    for number in 0..5 {
        let name = format!("snapshot-{number}");
        let id = source.driver.snapshot(&name, &source.usage.id).await.unwrap().snapshot_id;
        let image = bench.rows().into_iter().find(|row| row.id == id).unwrap().image;
        let cut = checksum_of(&image, DATA);
        unshared(&bench).await;
        assert_eq!(checksum_of(&image, DATA), cut, "{name} has changed while it was unshared");
        snapshots.push((id, image, cut));
    }
    stop.store(true, Ordering::Relaxed);
    let last = writer.join().unwrap();
    assert!(read(&source.usage.target, DATA).iter().all(|byte| *byte == last));
    for (id, image, cut) in snapshots {
        assert_eq!((checksum_of(&image, DATA), shared(&image)), (cut, 0));
        source.driver.delete_snapshot(&id).await.unwrap();
    }
    source.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thick_volume_says_that_it_may_miss_space_until_its_copy_is_unshared() {
    let Some(bench) = bench() else { return };
    let mut source = Source::new(&bench, "kill:UnshareCopied").await;
    let foreign = Foreign::create(&bench);
    let _ = source.driver.snapshot("snapshot", &source.usage.id).await;
    source.driver.killed().await.unwrap();
    let pool = Arc::new(without_a_driver(&bench));
    foreign.fill();
    let options = NodeOptions {
        program_limit: PATIENCE,
        kubelet_root: bench.path(""),
        cgroups: None,
        inline: InlineLimits::default(),
    };
    let state = wharf_driver::state_dir::StateDir::open(&bench.path("state"), "d").unwrap();
    let attached = state.attached().clone();
    let node = NodeVolumes::new(pool.clone(), options, Arc::default(), attached);
    let reasons = || {
        let found = node.volume_health(&source.usage.id).unwrap();
        found.into_iter().map(|ailment| ailment.reason).collect::<Vec<_>>()
    };
    assert_eq!(reasons(), ["PoolAlmostFull"]);
    // To come to its end it needs no free space.
    while let UnshareStep::Moved(_) = pool.unshare_step() {}
    assert_eq!((pool.unshare_step(), pool.unsharing_left()), (UnshareStep::Idle, 0));
    assert_eq!(reasons(), Vec::<&str>::new());
    write(&source.usage.target, &bytes(2, DATA));
}

fn run(command: &str, paths: &[&Path]) {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).args(paths).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A pool in a container is a mount, and yet others keep files on its disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_bind_mounted_is_not_a_filesystem_of_its_own() {
    for bound in [false, true] {
        if needs(&["mkfs.xfs"]).is_none() {
            return;
        }
        let Some(bench) = Bench::new(PoolKind::Copy) else { return };
        let (disk, mount, pool) = (bench.path("disk"), bench.path("mount"), bench.pool());
        File::create(&disk).unwrap().set_len(600 * MIB).unwrap();
        run("mkfs.xfs -q", &[&disk]);
        std::fs::create_dir(&pool).unwrap();
        if bound {
            std::fs::create_dir(&mount).unwrap();
            run("mount -o loop", &[&disk, &mount]);
            std::fs::create_dir(mount.join("folder")).unwrap();
            run("mount --bind", &[&mount.join("folder"), &pool]);
        } else {
            run("mount -o loop", &[&disk, &pool]);
        }
        let source = Source::new(&bench, "").await;
        source.driver.snapshot("snapshot", &source.usage.id).await.unwrap();
        unshared(&bench).await;
        let left: Vec<_> = bench.rows().iter().map(|row| shared(&row.image)).collect();
        assert_eq!(left, if bound { [0, 0] } else { [DATA, DATA] }, "bound: {bound}");
        source.driver.stop().await;
    }
}
