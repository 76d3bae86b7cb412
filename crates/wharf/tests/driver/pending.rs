//! Images that a killed e2fsck or resize2fs left half changed are restored before they are copied
//! or grown.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tonic::{Code, Status};
use wharf_mount::space;
use wharf_testkit::process;

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    bytes::{bytes, write},
    client::{Usage, from_volume, map, mounted, volume},
    codes::refused,
    running::Running,
    stand_in::{stand_in, start_with_path},
};

const SIZE: u64 = 32 * MIB;
const GROWN: u64 = 256 * MIB;
const LARGER: u64 = 320 * MIB;
const LIMIT: Duration = Duration::from_secs(60);

/// Where the superblock ends.
const SUPERBLOCK_END: usize = 2048;

/// The calls that copy or grow an image.
const CALLS: [&str; 4] = ["snapshot", "clone", "group", "expand"];

/// A thin volume with data whose image was grown and whose filesystem was not.
async fn to_be_grown(bench: &Bench, driver: &Running) -> (Usage, PathBuf) {
    let mut request = volume("pending", SIZE, mounted("ext4"));
    request.parameters = map(&[("thin", "true")]);
    let id = driver.create(request).await.unwrap().volume_id;
    let usage = Usage::new(bench, "pending", &id, mounted("ext4"));
    driver.bring_up(&usage).await.unwrap();
    write(&usage.file("data"), &bytes(1, MIB));
    driver.take_down(&usage).await.unwrap();
    driver.expand(&id, GROWN).await.unwrap();
    let image = bench.rows().into_iter().find(|row| row.id == id).unwrap().image;
    (usage, image)
}

/// The undo file of an image.
fn undo_of(bench: &Bench, image: &Path) -> PathBuf {
    let stem = image.file_stem().unwrap().to_str().unwrap();
    bench.images().join("undo").join(format!("{stem}.e2undo"))
}

/// Changes an image as a killed resize2fs does: the undo file is still there.
async fn change(bench: &Bench, image: &Path) {
    let mut resize = Command::new("resize2fs");
    resize.args(["-f", "-z"]).arg(undo_of(bench, image)).arg(image);
    process::run(&resize, LIMIT).await.unwrap();
}

/// Makes a call; gives the images of the copies that it made.
async fn call(
    bench: &Bench,
    driver: &Running,
    name: &str,
    id: &str,
) -> Result<Vec<PathBuf>, Status> {
    let ids = match name {
        "snapshot" => vec![driver.snapshot(name, id).await?.snapshot_id],
        "group" => {
            let group = driver.group(name, &[id]).await?;
            group.snapshots.into_iter().map(|member| member.snapshot_id).collect()
        }
        "clone" => {
            let mut request = volume(name, GROWN, mounted("ext4"));
            request.parameters = map(&[("thin", "true")]);
            request.volume_content_source = from_volume(id);
            vec![driver.create(request).await?.volume_id]
        }
        _ => {
            assert_eq!(driver.expand(id, LARGER).await?, LARGER);
            Vec::new()
        }
    };
    let rows = bench.rows().into_iter();
    Ok(rows.filter(|row| ids.contains(&row.id)).map(|row| row.image).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_changed_image_is_restored_before_it_is_copied_or_grown() {
    if needs(&["resize2fs", "e2undo"]).is_none() {
        return;
    }
    for name in CALLS {
        let Some(bench) = Bench::with_thin(PoolKind::Copy) else { return };
        let driver = bench.start().await;
        let (usage, image) = to_be_grown(&bench, &driver).await;
        let before = std::fs::read(&image).unwrap();
        change(&bench, &image).await;
        assert!(std::fs::read(&image).unwrap() != before, "resize2fs changed nothing");
        let copies = call(&bench, &driver, name, &usage.id).await.unwrap();
        assert!(!undo_of(&bench, &image).exists(), "{name}: the undo file is still there");
        for image in copies.iter().chain([&image]) {
            let now = std::fs::read(image).unwrap();
            // e2undo has the superblock ask for a check.
            let same = now[SUPERBLOCK_END..before.len()] == before[SUPERBLOCK_END..];
            assert!(same, "{name}: {} is half changed", image.display());
        }
        driver.bring_up(&usage).await.unwrap();
        driver.take_down(&usage).await.unwrap();
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_changed_image_that_cannot_be_restored_is_neither_copied_nor_grown() {
    if needs(&["resize2fs", "e2undo"]).is_none() {
        return;
    }
    for name in CALLS {
        let Some(bench) = Bench::with_thin(PoolKind::Copy) else { return };
        let broken = stand_in(&bench, "e2undo", "echo no such luck; exit 1");
        let driver = start_with_path(&bench, &broken).await;
        let (usage, image) = to_be_grown(&bench, &driver).await;
        change(&bench, &image).await;
        let answer = call(&bench, &driver, name, &usage.id).await;
        let said = refused(name, answer, Code::FailedPrecondition);
        assert!(said.contains(&usage.id) && said.contains("e2undo"), "{name}: {said}");
        assert_eq!(std::fs::metadata(&image).unwrap().len(), GROWN, "{name}");
        assert_eq!(bench.rows().len(), 1, "{name}: something is left");
        driver.stop().await;
        // A start with a working e2undo restores it.
        let driver = bench.start().await;
        assert!(!undo_of(&bench, &image).exists(), "{name}");
        call(&bench, &driver, name, &usage.id).await.unwrap();
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_volume_leaves_no_undo_file() {
    if needs(&["resize2fs", "e2undo"]).is_none() {
        return;
    }
    let Some(bench) = Bench::with_thin(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let (usage, image) = to_be_grown(&bench, &driver).await;
    change(&bench, &image).await;
    driver.delete(&usage.id).await.unwrap();
    assert!(!undo_of(&bench, &image).exists());
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_filesystem_that_has_to_grow_is_refused_with_the_way_to_repair_it() {
    if needs(&["debugfs", "resize2fs"]).is_none() {
        return;
    }
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        let Some(bench) = Bench::with_thin(pool) else { return };
        let driver = bench.start().await;
        let (usage, image) = to_be_grown(&bench, &driver).await;
        crate::repair::damage(&image).await;
        let said = refused("stage", driver.stage(&usage).await, Code::FailedPrecondition);
        let advice = format!("wharf driver pool repair {}", usage.id);
        assert!(said.contains(&advice), "{pool:?}: {said}");
        let repaired = bench.pool_command("repair", &[&usage.id, "--yes"]);
        assert!(repaired.status.success(), "{pool:?}: {repaired:?}");
        driver.bring_up(&usage).await.unwrap();
        driver.take_down(&usage).await.unwrap();
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expansion_that_is_retried_with_a_smaller_size_keeps_the_larger() {
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        let Some(bench) = Bench::with_thin(pool) else { return };
        let driver = bench.start_with(&["--fault", "fail:ExpandGrown"]).await;
        let id = driver.create(volume("a", SIZE, mounted("ext4"))).await.unwrap().volume_id;
        driver.expand(&id, 4 * SIZE).await.unwrap_err();
        assert_eq!(driver.expand(&id, 2 * SIZE).await.unwrap(), 4 * SIZE, "{pool:?}");
        let checked = bench.pool_command("check", &[]);
        assert!(checked.status.success(), "{pool:?}: {checked:?}");
        driver.stop().await;
    }
}

/// A pool on a disk of its own, which a file can fill.
fn on_a_small_disk(size: u64) -> Option<Bench> {
    let bench = Bench::with_thin(PoolKind::Copy)?;
    let (disk, pool) = (bench.path("disk"), bench.pool());
    std::fs::create_dir(&pool).unwrap();
    std::fs::File::create(&disk).unwrap().set_len(size).unwrap();
    let shell = "mkfs.ext4 -q -m 0 \"$0\" && mount -o loop \"$0\" \"$1\"";
    let done = Command::new("sh").args(["-c", shell]).args([&disk, &pool]).status().unwrap();
    assert!(done.success());
    Some(bench)
}

/// The programs report damage when their undo file has no room.
#[tokio::test(flavor = "multi_thread")]
async fn a_growth_without_room_for_its_undo_file_is_refused_for_want_of_room() {
    if needs(&["resize2fs", "e2undo"]).is_none() {
        return;
    }
    let Some(bench) = on_a_small_disk(512 * MIB) else { return };
    let bench = bench.flag("--floor", "1Mi");
    let driver = bench.start().await;
    let (usage, image) = to_be_grown(&bench, &driver).await;
    let before = std::fs::read(&image).unwrap();
    let filler = bench.pool().join("filler");
    let available = space::usage(&bench.pool()).unwrap().available;
    let file = std::fs::File::create(&filler).unwrap();
    space::allocate(&file, available - 2 * MIB, true).unwrap();
    let said = refused("stage", driver.stage(&usage).await, Code::Unavailable);
    assert!(said.contains("bytes left") && !said.contains("damaged"), "{said}");
    assert!(std::fs::read(&image).unwrap() == before, "the image was changed");
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    driver.bring_up(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_runs_out_of_room_does_not_call_the_filesystem_damaged() {
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        let Some(bench) = Bench::with_thin(pool) else { return };
        let full = "echo No space left on device while writing block 65536; exit 4";
        let driver = start_with_path(&bench, &stand_in(&bench, "e2fsck", full)).await;
        let (usage, _) = to_be_grown(&bench, &driver).await;
        let said = refused("stage", driver.stage(&usage).await, Code::Unavailable);
        assert!(said.contains("No space left") && !said.contains("damaged"), "{pool:?}: {said}");
        driver.stop().await;
        let driver = bench.start().await;
        driver.bring_up(&usage).await.unwrap();
        driver.take_down(&usage).await.unwrap();
        driver.stop().await;
    }
}

/// A program that had no room for more than the header of its undo file has changed nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_file_that_was_only_begun_holds_nothing_up() {
    let Some(bench) = Bench::with_thin(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let (usage, image) = to_be_grown(&bench, &driver).await;
    let before = std::fs::read(&image).unwrap();
    let mut header = b"E2UNDO02".to_vec();
    header.resize(2048, 0);
    std::fs::write(undo_of(&bench, &image), header).unwrap();
    let copy = call(&bench, &driver, "snapshot", &usage.id).await.unwrap().remove(0);
    assert!(std::fs::read(&copy).unwrap() == before);
    assert!(!undo_of(&bench, &image).exists());
    driver.stop().await;
}
