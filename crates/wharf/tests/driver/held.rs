//! Volumes that a foreign process holds: teardown, stage and start succeed, and nothing is leaked
//! once the process ends.

use std::{path::Path, process::Command, time::Duration};

use wharf_mount::space;
use wharf_testkit::process::{self, wait_for};

use crate::{
    bench::{Bench, MIB, PoolKind, loops_below, mounts_below, needs},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, block, map, mounted, volume},
    devices::{Stranger, devices, image_of, new_volume, refused},
    inline::inline,
    running::Running,
};

const SIZE: u64 = 64 * MIB;
const DATA: u64 = MIB;
const LIMIT: Duration = Duration::from_secs(20);

/// How an operator puts a copy in the place of an image.
const REPLACEMENTS: [&str; 2] = [
    "cp \"$0\" \"$0.new\" && mv \"$0.new\" \"$0\"",
    "mv \"$0\" \"$0.old\" && cp \"$0.old\" \"$0\"",
];

async fn replace(image: &Path, how: &str) {
    let mut shell = Command::new("sh");
    process::run(shell.arg("-c").arg(how).arg(image), LIMIT).await.unwrap();
    // The mark goes with the file, as `cp --preserve=xattr` would have it.
    let _ = std::fs::remove_file(format!("{}.old", image.display()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_image_was_replaced_is_taken_down_and_staged_from_the_new_image() {
    for restarted in [false, true] {
        for how in REPLACEMENTS {
            let Some(bench) = Bench::new(PoolKind::Copy) else { return };
            let mut driver = bench.start().await;
            let usage = new_volume(&bench, &driver, "replaced", mounted("ext4")).await;
            driver.bring_up(&usage).await.unwrap();
            write(&usage.file("before"), &bytes(1, DATA));
            wharf_mount::mounted::Mounted::any(&usage.target).unwrap().flush().unwrap();
            let image = image_of(&bench);
            replace(&image, how).await;
            write(&usage.file("after"), &bytes(2, DATA));
            if restarted {
                driver.stop().await;
                driver = bench.start().await;
            }
            driver.take_down(&usage).await.unwrap();
            let case = format!("restarted {restarted}, {how}");
            assert_eq!(
                mounts_below(&bench.path("stage")),
                Vec::<std::path::PathBuf>::new(),
                "{case}"
            );
            assert_eq!(loops_below(&bench.images()), [], "{case}");
            driver.bring_up(&usage).await.unwrap_or_else(|status| panic!("{case}: {status}"));
            let shown = loops_below(&bench.images());
            assert!(shown.len() == 1 && shown[0].1 == image, "{case}: {shown:?}");
            assert_eq!(checksum_of(&usage.file("before"), DATA), checksum(&bytes(1, DATA)));
            assert!(!usage.file("after").exists(), "{case}: it was written to the old file");
            driver.take_down(&usage).await.unwrap();
            driver.delete(&usage.id).await.unwrap();
            driver.stop().await;
            bench.assert_empty();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_volume_whose_image_was_replaced_is_taken_down_and_shows_the_new_image() {
    for restarted in [false, true] {
        for how in REPLACEMENTS {
            let Some(bench) = Bench::new(PoolKind::Copy) else { return };
            let mut driver = bench.start().await;
            let usage = new_volume(&bench, &driver, "replaced", block()).await;
            driver.bring_up(&usage).await.unwrap();
            write(&usage.target, &bytes(1, DATA));
            let image = image_of(&bench);
            replace(&image, how).await;
            if restarted {
                driver.stop().await;
                driver = bench.start().await;
            }
            driver.take_down(&usage).await.unwrap();
            let case = format!("restarted {restarted}, {how}");
            assert_eq!(loops_below(&bench.images()), [], "{case}");
            driver.bring_up(&usage).await.unwrap_or_else(|status| panic!("{case}: {status}"));
            assert_eq!(loops_below(&bench.images())[0].1, image, "{case}");
            assert_eq!(checksum_of(&usage.target, DATA), checksum(&bytes(1, DATA)));
            driver.take_down(&usage).await.unwrap();
            driver.delete(&usage.id).await.unwrap();
            driver.stop().await;
            bench.assert_empty();
        }
    }
}

/// The device of the old file is left to the stranger, and the volume gets a new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_image_is_staged_although_a_stranger_holds_the_old_one() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = new_volume(&bench, &driver, "replaced", mounted("ext4")).await;
    driver.bring_up(&usage).await.unwrap();
    let stranger = Stranger::start(&bench).await;
    let image = image_of(&bench);
    replace(&image, REPLACEMENTS[0]).await;
    driver.take_down(&usage).await.unwrap();
    driver.bring_up(&usage).await.unwrap();
    write(&usage.file("data"), &bytes(1, DATA));
    assert!(loops_below(&bench.images()).iter().any(|(_, backing)| *backing == image));
    driver.take_down(&usage).await.unwrap();
    // A mount of the old file, too, keeps the volume from being deleted.
    refused(driver.delete(&usage.id).await, "in use");
    stranger.end().await;
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_of_a_volume_whose_image_was_replaced_in_use_is_refused() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = new_volume(&bench, &driver, "replaced", mounted("ext4")).await;
    driver.stage(&usage).await.unwrap();
    replace(&image_of(&bench), REPLACEMENTS[0]).await;
    refused(driver.publish(&usage).await, "was replaced");
    let health = driver.health(&usage.id).await.unwrap();
    assert_eq!(health, ["Degraded ImageReplaced"]);
    driver.unstage(&usage).await.unwrap();
    driver.bring_up(&usage).await.unwrap();
    assert_eq!(driver.health(&usage.id).await.unwrap(), Vec::<String>::new());
    driver.take_down(&usage).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_that_a_stranger_holds_is_unpublished_and_removed_later() {
    for restarted in [false, true] {
        let Some(bench) = Bench::new(PoolKind::Copy) else { return };
        let mut driver = bench.start().await;
        let usage = inline(&bench, "held", "pod", mounted("ext4"), "16Mi");
        driver.publish(&usage).await.unwrap();
        let stranger = Stranger::inside(&bench, &usage.target).await;
        driver.unpublish(&usage).await.unwrap();
        driver.unpublish(&usage).await.unwrap();
        assert!(!usage.target.exists());
        let kept: Vec<_> = bench.rows().into_iter().map(|row| (row.kind, row.id)).collect();
        assert_eq!(kept, [("inline".to_owned(), usage.id.clone())]);
        stranger.end().await;
        if restarted {
            driver.stop().await;
            driver = bench.start().await;
        } else {
            let gone = async || devices(&bench).is_empty().then_some(());
            wait_for(LIMIT, "the device to go", gone).await.unwrap();
            let other = inline(&bench, "other", "pod", mounted("ext4"), "16Mi");
            driver.publish(&other).await.unwrap();
            driver.unpublish(&other).await.unwrap();
        }
        assert_eq!(bench.rows(), Vec::new(), "restarted {restarted}");
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_block_volume_that_a_process_has_open_is_unpublished_and_removed_later() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = inline(&bench, "held", "pod", block(), "16Mi");
    driver.publish(&usage).await.unwrap();
    let holder = std::fs::File::open(&devices(&bench)[0].path).unwrap();
    driver.unpublish(&usage).await.unwrap();
    assert_eq!(bench.rows().len(), 1);
    // A pod that asks for it again gets it.
    driver.publish(&usage).await.unwrap();
    driver.unpublish(&usage).await.unwrap();
    drop(holder);
    driver.stop().await;
    let driver = bench.start().await;
    assert_eq!(bench.rows(), Vec::new());
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_mounted_by_hand_is_refused_with_the_mount_point() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = new_volume(&bench, &driver, "mounted", mounted("ext4")).await;
    driver.bring_up(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    let point = bench.path("by-hand");
    std::fs::create_dir(&point).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-o", "loop"]).arg(image_of(&bench)).arg(&point);
    process::run(&mount, LIMIT).await.unwrap();
    let answer = driver.delete(&usage.id).await;
    refused(answer, &format!("mounted at {};", point.display()));
    wharf_mount::mount::unmount(&point).unwrap();
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_volume_that_was_expanded_is_staged_and_grows_later() {
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let usage = new_volume(&bench, &driver, "held", mounted("ext4")).await;
        driver.bring_up(&usage).await.unwrap();
        write(&usage.file("data"), &bytes(1, DATA));
        let first = devices(&bench);
        let stranger = Stranger::start(&bench).await;
        driver.take_down(&usage).await.unwrap();
        driver.expand(&usage.id, 4 * SIZE).await.unwrap();
        driver.bring_up(&usage).await.unwrap();
        assert_eq!(devices(&bench), first, "{pool:?}");
        assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(1, DATA)));
        stranger.end().await;
        driver.take_down(&usage).await.unwrap();
        driver.bring_up(&usage).await.unwrap();
        let total = space::usage(&usage.target).unwrap().total;
        assert!(total > 3 * SIZE, "{pool:?}: its filesystem has {total} bytes");
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unclean_volume_whose_device_is_open_elsewhere_is_staged_without_a_check() {
    if needs(&["debugfs"]).is_none() {
        return;
    }
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = new_volume(&bench, &driver, "held", mounted("ext4")).await;
    driver.bring_up(&usage).await.unwrap();
    let first = devices(&bench);
    let holder = std::fs::File::open(&first[0].path).unwrap();
    driver.take_down(&usage).await.unwrap();
    let mut debugfs = Command::new("debugfs");
    debugfs.args(["-w", "-R", "set_super_value state 2"]).arg(&first[0].path);
    process::run(&debugfs, LIMIT).await.unwrap();
    holder.sync_all().unwrap();

    // The process that has it open is named.
    refused(driver.delete(&usage.id).await, &format!("(process {})", std::process::id()));
    driver.bring_up(&usage).await.unwrap();
    assert_eq!(devices(&bench), first);
    drop(holder);
    driver.take_down(&usage).await.unwrap();
    driver.bring_up(&usage).await.unwrap();
    assert!(driver.log().contains("repaired filesystem"), "{}", driver.tail());
    driver.take_down(&usage).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

/// A start that waited for one volume after the other would take longer than `Running::start`
/// waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_does_not_wait_for_each_of_many_held_volumes() {
    const COUNT: usize = 12;
    let Some(bench) = Bench::with_thin(PoolKind::Copy) else { return };
    let fault = format!("kill:UnstagePromised:{COUNT}");
    let mut driver = bench.start_with(&["--fault", &fault]).await;
    let mut usages = Vec::new();
    for number in 0..COUNT {
        let mut request = volume(&format!("held-{number}"), 16 * MIB, mounted("ext4"));
        request.parameters = map(&[("thin", "true")]);
        let id = driver.create(request).await.unwrap().volume_id;
        let usage = Usage::new(&bench, &format!("held-{number}"), &id, mounted("ext4"));
        driver.stage(&usage).await.unwrap();
        usages.push(usage);
    }
    let stranger = Stranger::start(&bench).await;
    // The last of them ends the driver while the others wait for the stranger.
    let mut calls = tokio::task::JoinSet::new();
    for usage in usages.clone() {
        let client = crate::client::Client::new(&bench.socket());
        calls.spawn(async move { client.unstage(&usage).await });
    }
    while let Some(answer) = calls.join_next().await {
        answer.unwrap().unwrap_err();
    }
    driver.killed().await.unwrap();
    let driver = bench.start().await;
    stranger.end().await;
    for usage in &usages {
        driver.unstage(usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}

/// Whether a loop device has no image and refuses discards to whoever gets it next.
fn is_spoilt(number: u32) -> bool {
    let queue = Path::new("/sys/block").join(format!("loop{number}"));
    let read = |name: &str| std::fs::read_to_string(queue.join(name)).unwrap_or_default();
    !queue.join("loop/backing_file").exists()
        && read("queue/discard_max_bytes").trim() == "0"
        && !["", "0"].contains(&read("queue/discard_max_hw_bytes").trim())
}

async fn held_and_freed(bench: &Bench, driver: &Running) -> (Usage, u32) {
    let usage = new_volume(bench, driver, "thick", mounted("ext4")).await;
    driver.bring_up(&usage).await.unwrap();
    let number = devices(bench)[0].number;
    let stranger = Stranger::start(bench).await;
    driver.take_down(&usage).await.unwrap();
    stranger.end().await;
    let gone = async || devices(bench).is_empty().then_some(());
    wait_for(LIMIT, "the device to go", gone).await.unwrap();
    (usage, number)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_others_closed_last_does_not_refuse_discards_to_the_next_program() {
    for restarted in [false, true] {
        let Some(bench) = Bench::new(PoolKind::Copy) else { return };
        let mut driver = bench.start().await;
        let (usage, number) = held_and_freed(&bench, &driver).await;
        if restarted {
            driver.stop().await;
            driver = bench.start().await;
        }
        driver.delete(&usage.id).await.unwrap();
        assert!(!is_spoilt(number), "restarted {restarted}: /dev/loop{number}");
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_device_that_somebody_attached_to_a_staged_image_is_an_ailment() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = new_volume(&bench, &driver, "twice", mounted("ext4")).await;
    driver.bring_up(&usage).await.unwrap();
    let mut losetup = Command::new("losetup");
    losetup.args(["--find", "--show"]).arg(image_of(&bench));
    let second = process::run(&losetup, LIMIT).await.unwrap();
    let becomes = async |expected: &[&str]| {
        wait_for(LIMIT, &format!("{expected:?}"), async || {
            (driver.health(&usage.id).await.unwrap() == expected).then_some(())
        })
        .await
        .unwrap();
    };
    becomes(&["Degraded SecondDevice"]).await;
    let mut detach = Command::new("losetup");
    process::run(detach.args(["--detach", second.trim()]), LIMIT).await.unwrap();
    becomes(&[]).await;
    driver.take_down(&usage).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_in_use_is_refused_by_its_own_name() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = new_volume(&bench, &driver, "volume", mounted("ext4")).await;
    let snapshot = driver.snapshot("snapshot", &usage.id).await.unwrap().snapshot_id;
    let image = bench.rows().into_iter().find(|row| row.id == snapshot).unwrap().image;
    let mut losetup = Command::new("losetup");
    losetup.args(["--find", "--show", "--read-only"]).arg(&image);
    let device = process::run(&losetup, LIMIT).await.unwrap();
    let holder = std::fs::File::open(device.trim()).unwrap();
    refused(driver.delete_snapshot(&snapshot).await, "the snapshot cannot be deleted");
    drop(holder);
    driver.delete_snapshot(&snapshot).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}
