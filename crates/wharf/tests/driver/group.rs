//! Volumes that are frozen while they are copied: together, and briefly.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use tonic::Code;
use wharf_driver::{inspect::Row, pool::Mark};
use wharf_proto::csi;
use wharf_testkit::process::wait_for;

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    bytes::{bytes, checksum, checksum_of, takes_a_write, write},
    client::{Usage, block, from_snapshot, from_volume, mounted, volume},
    codes::refused,
    running::{PATIENCE, Running},
};

const SIZE: u64 = 16 * MIB;
const TRIALS: usize = 200;

async fn up(
    bench: &Bench,
    driver: &Running,
    name: &str,
    request: csi::CreateVolumeRequest,
) -> Usage {
    let capability = request.volume_capabilities[0].clone();
    let id = driver.create(request).await.unwrap().volume_id;
    let usage = Usage::new(bench, name, &id, capability);
    driver.bring_up(&usage).await.unwrap();
    usage
}

/// Writes a growing number to one file and then to the other, each through to the disk, until it is
/// told to stop.
fn count(first: &Path, second: &Path, reached: &AtomicU64, stop: &AtomicBool) {
    let files = [first, second].map(|path| File::create(path).unwrap());
    while !stop.load(Ordering::Relaxed) {
        let number = reached.load(Ordering::Relaxed) + 1;
        for file in &files {
            file.write_all_at(format!("{number:020}").as_bytes(), 0).unwrap();
            file.sync_all().unwrap();
        }
        reached.store(number, Ordering::Relaxed);
    }
}

/// The number in the snapshot of a volume, read past mounts and page caches.
fn counted(snapshots: &[PathBuf], volume: &str) -> u64 {
    let of_volume = |image: &&PathBuf| match Mark::read(image).unwrap() {
        Some(Mark::Snapshot { snapshot, .. }) => snapshot.volume == volume,
        _ => false,
    };
    let image = snapshots.iter().find(of_volume).expect("a snapshot of each volume");
    let output = Command::new("debugfs").args(["-R", "cat /counter"]).arg(image).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.parse().unwrap_or_else(|_| panic!("{text:?} {:?}", String::from_utf8(output.stderr)))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_is_in_a_group_without_those_before_it() {
    let Some(bench) = Bench::new(PoolKind::Reflink(512)) else { return };
    let Some(()) = needs(&["debugfs"]) else { return };
    // The first group's images are cut far apart, in which time an order that is not kept breaks.
    let driver = bench.start_with(&["--fault", "stall:GroupCutting"]).await;
    let a = up(&bench, &driver, "a", volume("a", SIZE, mounted("ext4"))).await;
    let b = up(&bench, &driver, "b", volume("b", SIZE, mounted("ext4"))).await;
    let (reached, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (first, second) = (a.file("counter"), b.file("counter"));
    let numbers = || {
        let folder = bench.images().join("snapshots");
        let images: Vec<_> =
            folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        (counted(&images, &a.id), counted(&images, &b.id))
    };
    let mut seen = Vec::new();
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| count(&first, &second, &reached, &stop));
        // The writer has to end whatever happens here, or the scope would not.
        let trials = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            tokio::task::block_in_place(|| {
                runtime.block_on(async {
                    while reached.load(Ordering::Relaxed) == 0 {
                        tokio::task::yield_now().await;
                    }
                    for trial in 0..TRIALS {
                        let group = driver.group("group", &[&a.id, &b.id]).await.unwrap();
                        let (first, second) = numbers();
                        let kept = first == second || first == second + 1;
                        assert!(kept, "{trial}: {first}, {second}");
                        seen.push(first);
                        driver.delete_group(&group).await.unwrap();
                    }
                });
            });
        }));
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        trials.unwrap();
    });
    seen.dedup();
    assert!(seen.len() > TRIALS / 2, "only {} of {TRIALS} trials met a write", seen.len());
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_volume_that_takes_too_long_to_copy_is_not_copied_and_not_held_up() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start_with(&["--freeze-limit", "1ms"]).await;
    let usage = up(&bench, &driver, "a", volume("a", 4 * SIZE, mounted(""))).await;
    write(&usage.file("data"), &vec![7; usize::try_from(2 * SIZE).unwrap()]);
    let clone = csi::CreateVolumeRequest {
        volume_content_source: from_volume(&usage.id),
        ..volume("clone", 4 * SIZE, mounted(""))
    };
    let said = [
        refused("snapshot", driver.snapshot("s", &usage.id).await, Code::FailedPrecondition),
        refused("group", driver.group("g", &[&usage.id]).await, Code::FailedPrecondition),
        refused("clone", driver.create(clone.clone()).await, Code::FailedPrecondition),
    ];
    for said in said {
        assert!(said.contains(&usage.id) && said.contains("reflink"), "{said}");
    }
    takes_a_write(&usage.target).await.unwrap();
    assert_eq!(bench.files().len(), 1, "{:?}", bench.files());
    // Nobody is held up by a volume that is not in use.
    driver.take_down(&usage).await.unwrap();
    driver.snapshot("s", &usage.id).await.unwrap();
    driver.create(clone).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_in_use_is_copied_only_where_a_copy_takes_no_time() {
    for pool in [PoolKind::Copy, PoolKind::Reflink(512)] {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let usage = up(&bench, &driver, "a", volume("a", SIZE, block())).await;
        let other = up(&bench, &driver, "b", volume("b", SIZE, mounted(""))).await;
        write(&usage.target, &bytes(1, MIB));
        let cut = driver.snapshot("s", &usage.id).await;
        if pool == PoolKind::Copy {
            let said = refused("snapshot", cut, Code::FailedPrecondition);
            assert!(said.contains("reflink"), "{said}");
            let both = driver.group("g", &[&other.id, &usage.id]).await;
            refused("group", both, Code::FailedPrecondition);
            // The one that was held still for the other goes on.
            takes_a_write(&other.target).await.unwrap();
            let clone = csi::CreateVolumeRequest {
                volume_content_source: from_volume(&usage.id),
                ..volume("clone", SIZE, block())
            };
            refused("clone", driver.create(clone).await, Code::FailedPrecondition);
            assert_eq!(bench.files().len(), 2, "{:?}", bench.files());
        } else {
            cut.unwrap();
            takes_a_write(&other.target).await.unwrap();
        }
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_not_deleted_while_a_member_is_restored() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    // The second volume that is created, which is the restored one, is held up before its copy
    // begins.
    let driver = bench.start_with(&["--fault", "stall:CreatePromised:2"]).await;
    let data = bytes(1, 48 * MIB);
    let source = up(&bench, &driver, "a", volume("a", 64 * MIB, block())).await;
    write(&source.target, &data);
    driver.take_down(&source).await.unwrap();
    let group = driver.group("g", &[&source.id]).await.unwrap();
    let request = csi::CreateVolumeRequest {
        volume_content_source: from_snapshot(&group.snapshots[0].snapshot_id),
        ..volume("restored", 64 * MIB, block())
    };
    let restore = driver.create(request);
    let delete = async {
        wait_for(PATIENCE, "the restore to begin", async || {
            let begun = |row: Row| row.name == "restored" && row.state.starts_with("creating");
            bench.rows().into_iter().any(begun).then_some(())
        })
        .await
        .unwrap();
        let unnamed = csi::VolumeGroupSnapshot { snapshots: Vec::new(), ..group.clone() };
        (driver.delete_group(&unnamed).await, driver.delete_group(&group).await)
    };
    let (restored, (unnamed, named)) = tokio::join!(restore, delete);
    let said = refused("no members", unnamed, Code::InvalidArgument);
    assert!(said.contains("snapshot_ids"), "{said}");
    refused("a member in use", named, Code::Aborted);
    let usage = Usage::new(&bench, "restored", &restored.unwrap().volume_id, block());
    driver.bring_up(&usage).await.unwrap();
    let size = 48 * MIB;
    assert_eq!(checksum_of(&usage.target, size), checksum(&data));
    driver.delete_group(&group).await.unwrap();
    driver.stop().await;
}

/// Somebody who thaws a volume in the middle of its copy, such as a backup program, makes the copy
/// worthless.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_volume_that_somebody_thawed_meanwhile_is_refused() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let id = driver.create(volume("a", 256 * MIB, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted(""));
    driver.bring_up(&usage).await.unwrap();
    write(&usage.file("data"), &bytes(1, 128 * MIB));
    let staging = usage.staging.clone();
    let thaw = tokio::task::spawn_blocking(move || {
        let deadline = std::time::Instant::now() + PATIENCE;
        while !wharf_mount::freeze::thaw(&staging).unwrap() {
            assert!(std::time::Instant::now() < deadline, "it is never frozen");
        }
    });
    let cut = driver.snapshot("torn", &id).await.map(drop);
    thaw.await.unwrap();
    let text = refused("a torn copy", cut, Code::Aborted);
    assert!(text.contains("another process thawed"), "{text}");
    assert_eq!(bench.rows().len(), 1, "a torn snapshot is left");
    driver.snapshot("whole", &id).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}
