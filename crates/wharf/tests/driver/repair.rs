//! `wharf driver pool path` and `repair`, for volumes that the driver refuses.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tonic::Code;
use wharf_testkit::process;

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    client::{Usage, mounted, volume},
    running::Running,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Takes the root folder of the ext4 in an image away, and has the filesystem say that it has
/// errors.
pub(crate) async fn damage(image: &Path) {
    for change in ["clri <2>", "set_super_value state 2"] {
        let mut debugfs = Command::new("debugfs");
        process::run(debugfs.args(["-w", "-R", change]).arg(image), LIMIT).await.unwrap();
    }
}

async fn damaged_volume(bench: &Bench, driver: &Running) -> (Usage, PathBuf) {
    let id = driver.create(volume("broken", 64 * MIB, mounted("ext4"))).await.unwrap().volume_id;
    let usage = Usage::new(bench, "broken", &id, mounted("ext4"));
    driver.bring_up(&usage).await.unwrap();
    std::fs::write(usage.file("data"), "data").unwrap();
    let busy = bench.pool_command("repair", &[&id, "--yes"]);
    assert!(!busy.status.success());
    assert!(String::from_utf8_lossy(&busy.stderr).contains("staged at"), "{busy:?}");
    driver.take_down(&usage).await.unwrap();
    let path = bench.pool_command("path", &["broken"]);
    assert!(path.status.success(), "{path:?}");
    let image = PathBuf::from(String::from_utf8(path.stdout).unwrap().trim());
    assert!(image.is_file(), "{}", image.display());
    damage(&image).await;
    let status = driver.stage(&usage).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("pool repair"), "{status}");
    (usage, image)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_volume_is_repaired_when_a_person_says_so() {
    if needs(&["debugfs"]).is_none() {
        return;
    }
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        for running in [true, false] {
            let Some(bench) = Bench::new(pool) else { return };
            let driver = bench.start().await;
            let (usage, image) = damaged_volume(&bench, &driver).await;
            let before = std::fs::read(&image).unwrap();
            let mut driver = Some(driver);
            if !running {
                driver.take().unwrap().stop().await;
            }
            let unasked = bench.pool_command("repair", &[&usage.id]);
            assert!(!unasked.status.success());
            assert!(String::from_utf8_lossy(&unasked.stderr).contains("--yes"), "{unasked:?}");
            assert_eq!(std::fs::read(&image).unwrap(), before, "nothing is changed unasked");

            let repaired = bench.pool_command("repair", &[&usage.id, "--yes"]);
            assert!(repaired.status.success(), "{repaired:?}");
            let kept = bench.images().join("quarantine").read_dir().unwrap().next().unwrap();
            let kept = kept.unwrap().path();
            assert_eq!(std::fs::read(&kept).unwrap(), before, "{pool:?}: the image as it was");
            std::fs::remove_file(kept).unwrap();
            let driver = match driver {
                Some(driver) => driver,
                None => bench.start().await,
            };
            driver.bring_up(&usage).await.unwrap();
            driver.take_down(&usage).await.unwrap();
            driver.delete(&usage.id).await.unwrap();
            driver.stop().await;
            bench.assert_empty();
        }
    }
}

/// A repair that shows a half-done state for a second: what e2fsck overwrites first, it mends last.
const SLOW: &str = r#"
for image; do :; done
dir=$(dirname "$0")
printf half-done | dd of="$image" bs=1 seek=100 conv=notrunc status=none
touch "$dir/begun"
sleep 1
printf '\0\0\0\0\0\0\0\0\0' | dd of="$image" bs=1 seek=100 conv=notrunc status=none
exec $real "$@"
"#;

/// Starts a repair, and makes a call as soon as e2fsck is at work.
async fn during_a_repair<T>(
    bench: &Bench,
    folder: &Path,
    id: &str,
    call: impl AsyncFnOnce() -> T,
) -> T {
    let mut command = Command::new(crate::bench::WHARF);
    command.args(["driver", "pool", "repair", "--pool"]).arg(bench.pool()).args([id, "--yes"]);
    let (repaired, answer) = tokio::join!(process::output(&command, LIMIT), async {
        let begun = async || folder.join("begun").exists().then_some(());
        process::wait_for(LIMIT, "e2fsck to begin", begun).await.unwrap();
        call().await
    });
    let repaired = repaired.unwrap();
    assert!(repaired.status.success(), "{repaired:?}");
    std::fs::remove_file(folder.join("begun")).unwrap();
    answer
}

async fn volume_for_slow_repair(bench: &Bench) -> (PathBuf, Running, Usage) {
    let folder = crate::stand_in::stand_in(bench, "e2fsck", SLOW);
    let driver = crate::stand_in::start_with_path(bench, &folder).await;
    let id = driver.create(volume("slow", 64 * MIB, mounted("ext4"))).await.unwrap().volume_id;
    let usage = Usage::new(bench, "slow", &id, mounted("ext4"));
    driver.bring_up(&usage).await.unwrap();
    std::fs::write(usage.file("data"), "data").unwrap();
    driver.take_down(&usage).await.unwrap();
    (folder, driver, usage)
}

fn is_half_done(image: &Path) -> bool {
    crate::bytes::read(image, 109)[100..] == *b"half-done"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_not_copied_in_the_middle_of_a_repair() {
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        let Some(bench) = Bench::new(pool) else { return };
        let (folder, driver, usage) = volume_for_slow_repair(&bench).await;
        let snapshot = during_a_repair(&bench, &folder, &usage.id, async || {
            driver.snapshot("s", &usage.id).await
        });
        let snapshot = snapshot.await.unwrap().snapshot_id;
        let clone = during_a_repair(&bench, &folder, &usage.id, async || {
            let mut request = volume("clone", 64 * MIB, mounted("ext4"));
            request.volume_content_source = crate::client::from_volume(&usage.id);
            driver.create(request).await
        });
        let clone = clone.await.unwrap().volume_id;
        let group = during_a_repair(&bench, &folder, &usage.id, async || {
            driver.group("g", &[&usage.id]).await
        });
        let member = group.await.unwrap().snapshots.remove(0).snapshot_id;
        for row in bench.rows() {
            assert!([&snapshot, &clone, &member, &usage.id].contains(&&row.id));
            assert!(!is_half_done(&row.image), "{pool:?}: {} {}", row.kind, row.name);
        }
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_expanded_during_a_repair_keeps_its_new_size() {
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        let Some(bench) = Bench::new(pool) else { return };
        let (folder, driver, usage) = volume_for_slow_repair(&bench).await;
        let call = async || driver.expand(&usage.id, 128 * MIB).await;
        during_a_repair(&bench, &folder, &usage.id, call).await.unwrap();
        let row = bench.rows().remove(0);
        assert_eq!(std::fs::metadata(&row.image).unwrap().len(), 128 * MIB, "{pool:?}");
        driver.bring_up(&usage).await.unwrap();
        assert_eq!(std::fs::read(usage.file("data")).unwrap(), b"data");
        driver.take_down(&usage).await.unwrap();
        driver.stop().await;
    }
}

/// Names and contents of the files in quarantine.
fn quarantine(bench: &Bench) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = bench.images().join("quarantine").read_dir().unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_keeps_a_copy_that_shares_no_blocks_and_equals_the_image_before() {
    if needs(&["debugfs"]).is_none() {
        return;
    }
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let (usage, image) = damaged_volume(&bench, &driver).await;
        let mut before = Vec::new();
        // A second repair keeps a copy of its own beside the first one's.
        for round in 1..=2 {
            before.push(std::fs::read(&image).unwrap());
            let repaired = bench.pool_command("repair", &[&usage.id, "--yes"]);
            assert!(repaired.status.success(), "{repaired:?}");
            let kept = quarantine(&bench);
            assert_eq!(kept.len(), round, "{pool:?}");
            let name = kept[round - 1].0.file_name().unwrap().to_str().unwrap().to_owned();
            let stem = image.file_stem().unwrap().to_str().unwrap();
            assert!(name.starts_with(&format!("{stem}-before-")), "{name}");
            let equal = kept.iter().zip(&before).all(|((_, kept), before)| kept == before);
            assert!(equal, "{pool:?}: a kept copy differs from the image before");
            damage(&image).await;
        }
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_fails_leaves_the_image_and_everything_in_quarantine() {
    if needs(&["debugfs"]).is_none() {
        return;
    }
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let (usage, image) = damaged_volume(&bench, &driver).await;
        driver.stop().await;
        let earlier = bench.images().join("quarantine").join("earlier.img");
        std::fs::write(&earlier, "of an earlier repair").unwrap();
        let (others, before) = (quarantine(&bench), std::fs::read(&image).unwrap());
        let folder = crate::stand_in::stand_in(&bench, "e2fsck", "echo out of memory; exit 8");
        let driver = crate::stand_in::start_with_path(&bench, &folder).await;
        let failed = bench.pool_command("repair", &[&usage.id, "--yes"]);
        assert!(!failed.status.success(), "{failed:?}");
        assert!(String::from_utf8_lossy(&failed.stderr).contains("out of memory"), "{failed:?}");
        assert!(std::fs::read(&image).unwrap() == before, "{pool:?}: the image was changed");
        let left = quarantine(&bench);
        assert!(others.iter().all(|other| left.contains(other)), "{pool:?}: something is gone");
        assert_eq!(left.len(), others.len(), "{pool:?}: the copy of a repair that failed is kept");
        assert_eq!(bench.images().join("partial").read_dir().unwrap().count(), 0, "{pool:?}");
        assert_eq!(bench.images().join("undo").read_dir().unwrap().count(), 0, "{pool:?}");
        driver.stop().await;
    }
}
