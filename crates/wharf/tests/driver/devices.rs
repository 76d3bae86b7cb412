//! One loop device per image, whoever else holds it, and targets that show only the device of their
//! volume.

use std::{
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tonic::{Code, Status};
use wharf_mount::loopdev::{self, Loop, LoopStatus};
use wharf_proto::csi::{self, volume_capability::access_mode::Mode};
use wharf_testkit::process::{self, Process};

use crate::{
    bench::{Bench, MIB, PoolKind, loops_below, mounts_below},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, block, block_as, from_snapshot, mounted, mounted_as, volume},
    running::Running,
};

const SIZE: u64 = 64 * MIB;
const DATA: u64 = MIB;
const PATIENCE: Duration = Duration::from_secs(20);
const POOLS: [PoolKind; 3] = [PoolKind::Copy, PoolKind::Reflink(1024), PoolKind::Btrfs(1024)];

/// A process in a mount namespace of its own, where the bench's mounts of this moment stay until
/// the process ends.
pub(crate) struct Stranger(Process);

impl Stranger {
    pub(crate) async fn start(bench: &Bench) -> Self {
        Self::inside(bench, Path::new("/")).await
    }

    /// One that also works in `folder`, so that the mount there stays when the folder below it is
    /// removed.
    pub(crate) async fn inside(bench: &Bench, folder: &Path) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        // Those of other tests go at once.
        const HOLD: &str = r#"
            awk -v all="$0/" -v own="$1" 'index($5, all) == 1 && index($5, own) != 1 { print $5 }' /proc/self/mountinfo |
                xargs -r umount --lazy
            cd "$2" && echo holding
            exec sleep 600
        "#;
        command.arg(HOLD).arg(std::env::temp_dir()).arg(bench.path("")).arg(folder);
        let mut process = Process::start("stranger", &command, &bench.path("")).unwrap();
        let holding = |line: &str| (line == "holding").then_some(());
        process.line(PATIENCE, "the namespace", holding).await.unwrap();
        Self(process)
    }

    pub(crate) async fn end(mut self) {
        self.0.signal(rustix::process::Signal::KILL).unwrap();
        self.0.wait(PATIENCE).await.unwrap();
    }
}

/// The loop devices of the pool's images.
pub(crate) fn devices(bench: &Bench) -> Vec<Loop> {
    loops_below(&bench.images()).into_iter().map(|(device, _)| device).collect()
}

#[track_caller]
pub(crate) fn refused(answer: Result<(), Status>, words: &str) {
    let status = answer.expect_err("it is refused");
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains(words), "{words:?} is not in: {status}");
}

/// A volume, and paths to use it at.
pub(crate) async fn new_volume(
    bench: &Bench,
    driver: &Running,
    name: &str,
    capability: csi::VolumeCapability,
) -> Usage {
    let request = volume(name, SIZE, capability.clone());
    let id = driver.create(request).await.unwrap().volume_id;
    Usage::new(bench, name, &id, capability)
}

pub(crate) fn image_of(bench: &Bench) -> PathBuf {
    let mut images = bench.images().join("volumes").read_dir().unwrap();
    images.next().unwrap().unwrap().path()
}

/// Whether the filesystem in the pool's only image is whole.
async fn check(bench: &Bench) {
    let mut fsck = Command::new("e2fsck");
    fsck.args(["-f", "-n"]).arg(image_of(bench));
    process::run(&fsck, PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_a_stranger_holds_is_staged_on_the_same_device_again() {
    for pool in POOLS {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let usage = new_volume(&bench, &driver, "held", mounted("ext4")).await;
        driver.bring_up(&usage).await.unwrap();
        write(&usage.file("before"), &bytes(1, DATA));
        let first = devices(&bench);
        let stranger = Stranger::start(&bench).await;

        // A stranger does not hang a pod's teardown.
        driver.unpublish(&usage).await.unwrap();
        driver.unstage(&usage).await.unwrap();
        driver.unstage(&usage).await.unwrap();
        assert!(driver.log().contains("kernel detaches it on last close"), "{}", driver.tail());
        let held = devices(&bench);
        assert!(held.len() == 1 && held[0].clearing, "{held:?}");
        refused(driver.delete(&usage.id).await, "in use");

        driver.bring_up(&usage).await.unwrap();
        let again = devices(&bench);
        assert_eq!(again, first, "{pool:?}: one device, the same, and not to be cleared");
        assert_eq!(checksum_of(&usage.file("before"), DATA), checksum(&bytes(1, DATA)));
        for number in 0..400_u64 {
            std::fs::write(usage.file(&format!("file-{number}")), bytes(number, 4096)).unwrap();
        }
        stranger.end().await;
        for number in 0..400_u64 {
            let file = usage.file(&format!("file-{number}"));
            assert_eq!(checksum_of(&file, 4096), checksum(&bytes(number, 4096)));
        }
        driver.take_down(&usage).await.unwrap();
        check(&bench).await;
        driver.delete(&usage.id).await.unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_device_is_neither_checked_nor_turned_around() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = new_volume(&bench, &driver, "held", mounted("ext4")).await;
    driver.bring_up(&usage).await.unwrap();
    let stranger = Stranger::start(&bench).await;
    driver.take_down(&usage).await.unwrap();
    // The stranger's mount writes; a stage that only reads would have to be on another device.
    let reader = mounted_as("ext4", &[], Mode::SingleNodeReaderOnly);
    let reader = Usage { capability: reader, ..usage.clone() };
    refused(driver.stage(&reader).await, "for writing");
    assert_eq!(devices(&bench).len(), 1);
    stranger.end().await;
    driver.bring_up(&reader).await.unwrap();
    driver.take_down(&reader).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

/// The loop device that a block target shows.
fn device_at(target: &Path) -> Option<LoopStatus> {
    let metadata = std::fs::metadata(target).unwrap();
    assert!(metadata.file_type().is_block_device(), "{}", target.display());
    let all = loopdev::list().unwrap().into_iter();
    all.into_iter()
        .find(|status| loopdev::device_number(&status.loopdev.path).unwrap() == metadata.rdev())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_published_while_another_is_unpublished_keeps_its_device() {
    for pool in POOLS {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start_with(&["--fault", "stall:UnpublishForgotten"]).await;
        let shared = block_as(Mode::SingleNodeMultiWriter);
        let first = new_volume(&bench, &driver, "shared", shared).await;
        let first = Usage { read_only: true, ..first };
        let second = Usage { target: bench.path("pods/second"), ..first.clone() };
        driver.bring_up(&first).await.unwrap();
        // The first target is forgotten, and its device not yet detached, when the second is
        // published.
        let (gone, published) = tokio::join!(driver.unpublish(&first), async {
            let forgotten = async || (!first.target.exists()).then_some(());
            process::wait_for(PATIENCE, "the first target to go", forgotten).await.unwrap();
            driver.publish(&second).await
        });
        gone.unwrap();
        published.unwrap();
        let shown = device_at(&second.target).expect("the target's device has an image");
        assert_eq!(shown.loopdev.backing, image_of(&bench), "{pool:?}");
        driver.take_down(&second).await.unwrap();
        driver.delete(&first.id).await.unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_of_a_block_volume_are_never_on_two_devices() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let writer = block_as(Mode::SingleNodeMultiWriter);
    let writer = new_volume(&bench, &driver, "shared", writer).await;
    let reader = Usage { target: bench.path("pods/reader"), read_only: true, ..writer.clone() };
    driver.bring_up(&writer).await.unwrap();
    refused(driver.publish(&reader).await, "for writing");
    assert!(!reader.target.exists());
    driver.unpublish(&writer).await.unwrap();
    driver.publish(&reader).await.unwrap();
    refused(driver.publish(&writer).await, "only for reading");
    assert_eq!(devices(&bench).len(), 1);
    driver.unpublish(&reader).await.unwrap();
    driver.publish(&writer).await.unwrap();
    driver.take_down(&writer).await.unwrap();
    driver.delete(&writer.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_volume_is_not_deleted_although_no_record_knows_the_mount() {
    for pool in POOLS {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let usage = new_volume(&bench, &driver, "mounted", mounted("ext4")).await;
        driver.bring_up(&usage).await.unwrap();
        write(&usage.file("data"), &bytes(1, DATA));
        driver.stop().await;
        std::fs::remove_file(bench.images().join("state.redb")).unwrap();
        let driver = bench.start().await;
        for _ in 0..2 {
            refused(driver.delete(&usage.id).await, "in use");
            assert_eq!(devices(&bench).iter().filter(|device| device.clearing).count(), 0);
        }
        assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(1, DATA)));
        for point in mounts_below(&bench.path("pods")).iter().chain([&usage.staging]) {
            wharf_mount::mount::unmount(point).unwrap();
        }
        driver.delete(&usage.id).await.unwrap();
        driver.stop().await;
        std::fs::remove_dir(&usage.target).unwrap();
        bench.assert_empty();
    }
}

/// Somebody brought back a state file of before the volume: its record comes from the image's mark.
#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_volume_that_an_older_state_file_does_not_know_is_taken_down() {
    for pool in POOLS {
        let Some(bench) = Bench::new(pool) else { return };
        bench.start().await.stop().await;
        let (state, old) = (bench.images().join("state.redb"), bench.path("old.redb"));
        std::fs::copy(&state, &old).unwrap();
        let driver = bench.start().await;
        let usage = new_volume(&bench, &driver, "mounted", mounted("ext4")).await;
        driver.bring_up(&usage).await.unwrap();
        write(&usage.file("data"), &bytes(1, DATA));
        driver.stop().await;
        std::fs::copy(&old, &state).unwrap();
        let driver = bench.start().await;
        refused(driver.delete(&usage.id).await, "in use");
        assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(1, DATA)));
        driver.unpublish(&usage).await.unwrap();
        driver.unstage(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_loop_or_image_is_gone_is_unpublished_all_the_same() {
    for capability in [mounted("ext4"), block()] {
        for lost in ["loop", "image"] {
            let Some(bench) = Bench::new(PoolKind::Copy) else { return };
            let driver = bench.start().await;
            let usage = new_volume(&bench, &driver, "lost", capability.clone()).await;
            driver.bring_up(&usage).await.unwrap();
            match lost {
                "image" => std::fs::remove_file(image_of(&bench)).unwrap(),
                // A device that is mounted goes with its last mount, one that is only shown at
                // once.
                _ => {
                    let _busy = loopdev::detach(&devices(&bench)[0]);
                }
            }
            driver.unpublish(&usage).await.unwrap();
            driver.unstage(&usage).await.unwrap();
            driver.delete(&usage.id).await.unwrap();
            driver.stop().await;
            bench.assert_empty();
        }
    }
}

/// A read-only stage first mounts the volume for writing, so that its journal is replayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_was_cut_short_leaves_no_writable_mount() {
    for point in ["ReplayAttached", "ReplayMounted", "ReplayUnmounted"] {
        for retried in [true, false] {
            let Some(bench) = Bench::new(PoolKind::Copy) else { return };
            let driver = bench.start_with(&["--fault", &format!("kill:{point}")]).await;
            let usage = new_volume(&bench, &driver, "read", mounted("ext4")).await;
            driver.bring_up(&usage).await.unwrap();
            write(&usage.file("data"), &bytes(1, DATA));
            driver.take_down(&usage).await.unwrap();
            let reader = mounted_as("ext4", &[], Mode::SingleNodeReaderOnly);
            let reader = Usage { capability: reader, ..usage.clone() };
            let mut driver = driver;
            driver.stage(&reader).await.unwrap_err();
            driver.killed().await.unwrap();
            let driver = bench.start().await;
            assert_eq!(devices(&bench), [], "{point}: the start undoes what was begun");
            if retried {
                driver.bring_up(&reader).await.unwrap();
                assert!(devices(&bench).iter().all(|device| device.read_only), "{point}");
                assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(1, DATA)));
                driver.take_down(&reader).await.unwrap();
            }
            driver.delete(&usage.id).await.unwrap();
            driver.stop().await;
            bench.assert_empty();
        }
    }
}

/// What is written through a device that shows only a part of the image, or blocks of another size,
/// is lost to the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_somebody_attached_in_another_way_is_not_used() {
    for options in [&["--offset", "1048576"][..], &["--sizelimit", "33554432"], &[]] {
        let Some(bench) = Bench::new(PoolKind::Copy) else { return };
        let driver = bench.start().await;
        let usage = new_volume(&bench, &driver, "volume", mounted("ext4")).await;
        let mut losetup = Command::new("losetup");
        losetup.args(["--find"]).args(options).arg(image_of(&bench));
        process::run(&losetup, PATIENCE).await.unwrap();
        for round in 0..2 {
            driver.bring_up(&usage).await.unwrap();
            let found = devices(&bench);
            assert!(found.len() == 1 && !found[0].partial, "{options:?}: {found:?}");
            if round == 0 {
                write(&usage.file("data"), &bytes(1, DATA));
            }
            assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(1, DATA)));
            driver.take_down(&usage).await.unwrap();
        }
        driver.delete(&usage.id).await.unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_after_an_unstage_has_all_that_was_written_although_a_stranger_holds_the_mount()
{
    let Some(bench) = Bench::new(PoolKind::Reflink(1024)) else { return };
    let driver = bench.start().await;
    let usage = new_volume(&bench, &driver, "held", mounted("ext4")).await;
    driver.bring_up(&usage).await.unwrap();
    std::fs::write(usage.file("data"), bytes(1, DATA)).unwrap();
    let stranger = Stranger::start(&bench).await;
    driver.take_down(&usage).await.unwrap();
    let snapshot = driver.snapshot("snapshot", &usage.id).await.unwrap().snapshot_id;
    let mut request = volume("restored", SIZE, mounted("ext4"));
    request.volume_content_source = from_snapshot(&snapshot);
    let id = driver.create(request).await.unwrap().volume_id;
    let restored = Usage::new(&bench, "restored", &id, mounted("ext4"));
    driver.bring_up(&restored).await.unwrap();
    assert_eq!(checksum_of(&restored.file("data"), DATA), checksum(&bytes(1, DATA)));
    stranger.end().await;
    driver.take_down(&restored).await.unwrap();
    for id in [&restored.id, &usage.id] {
        driver.delete(id).await.unwrap();
    }
    driver.delete_snapshot(&snapshot).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}
