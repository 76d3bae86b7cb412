//! Data that a disk lost: no volume that a caller knows is deleted, and no loss is hidden.

use std::{
    fs::{self, File},
    path::Path,
};

use tonic::Code;
use wharf_proto::csi;

use crate::{
    bench::{Bench, MIB, PoolKind, WHARF},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, from_snapshot, from_volume, mounted, volume},
    codes::refused,
    running::Running,
    state_file::with_volume_on_second_pool,
};

const SIZE: u64 = 32 * MIB;

/// Flips a bit of the newest of the two commits that the header of a state file names.
fn lose_last_commit(state: &Path) {
    let mut file = fs::read(state).unwrap();
    let newest = 64 + 128 * usize::from(file[9] & 1);
    file[newest + 8] ^= 4;
    fs::write(state, file).unwrap();
}

/// Kills the driver, has its pool lose its last commit, and starts it again.
async fn restart_without_last_commit(bench: &Bench, driver: Running) -> Running {
    driver.kill().await;
    lose_last_commit(&bench.images().join("state.redb"));
    let driver = bench.start().await;
    let quarantine = bench.images().join("quarantine");
    assert_eq!(fs::read_dir(quarantine).unwrap().count(), 0, "put aside");
    driver
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_was_told_of_outlives_the_loss_of_the_last_commit() {
    for kind in [PoolKind::Copy, PoolKind::Reflink(512)] {
        let Some(bench) = Bench::new(kind) else { continue };
        let driver = bench.start().await;
        let made = driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
        let driver = restart_without_last_commit(&bench, driver).await;
        assert_eq!(driver.list().await.unwrap(), [&*made.volume_id], "{kind:?}");
        assert!(driver.log().contains("recorded complete image from its mark"), "{}", driver.log());

        let a = Usage::new(&bench, "a", &made.volume_id, mounted(""));
        let data = bytes(3, MIB);
        driver.bring_up(&a).await.unwrap();
        write(&a.file("data"), &data);
        driver.take_down(&a).await.unwrap();
        let snapshot = driver.snapshot("s", &a.id).await.unwrap();
        let driver = restart_without_last_commit(&bench, driver).await;
        let again = driver.snapshot("s", &a.id).await.unwrap();
        assert_eq!(again.snapshot_id, snapshot.snapshot_id, "{kind:?}");
        assert_eq!(again.creation_time, snapshot.creation_time, "cut anew");

        let group = driver.group("g", &[&a.id]).await.unwrap();
        let driver = restart_without_last_commit(&bench, driver).await;
        let again = driver.group("g", &[&a.id]).await.unwrap();
        assert_eq!(again.snapshots, group.snapshots, "{kind:?}");

        let mut restored = volume("b", SIZE, mounted(""));
        restored.volume_content_source = from_snapshot(&snapshot.snapshot_id);
        let restored = driver.create(restored).await.unwrap().volume_id;
        let driver = restart_without_last_commit(&bench, driver).await;
        let b = Usage::new(&bench, "b", &restored, mounted(""));
        driver.bring_up(&b).await.unwrap();
        assert_eq!(checksum_of(&b.file("data"), MIB), checksum(&data), "{kind:?}");
        driver.take_down(&b).await.unwrap();
        driver.stop().await;
    }
}

/// The caller was never told of the group, or is told of it as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_which_only_a_part_is_found_is_not_answered_as_whole() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        ids.push(driver.create(volume(name, SIZE, mounted(""))).await.unwrap().volume_id);
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    driver.stop().await;
    let mut driver = bench.start_with(&["--fault", "kill:GroupRenamedOne"]).await;
    driver.group("g", &ids).await.unwrap_err();
    driver.killed().await.unwrap();
    fs::remove_file(bench.images().join("state.redb")).unwrap();
    let driver = bench.start().await;
    let said = refused("group", driver.group("g", &ids).await, Code::FailedPrecondition);
    assert!(said.contains("has 1 of 2 snapshots"), "{said}");
    // As the message says.
    let group = said.split_whitespace().find(|word| word.starts_with("group-")).unwrap();
    let mut left = bench.rows().into_iter().filter(|row| row.id.starts_with("snap-"));
    let member = csi::Snapshot { snapshot_id: left.next().unwrap().id, ..Default::default() };
    let part = csi::VolumeGroupSnapshot {
        group_snapshot_id: group.to_owned(),
        snapshots: vec![member],
        ..Default::default()
    };
    driver.delete_group(&part).await.unwrap();
    assert_eq!(driver.group("g", &ids).await.unwrap().snapshots.len(), 2);
    driver.stop().await;
}

/// A person copied an image of another pool into this one: this pool does not serve it, and keeps
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_another_pool_is_not_recorded() {
    let Some((bench, fast, id)) = with_volume_on_second_pool().await else { return };
    let images = fs::read_dir(fast.join("volumes")).unwrap();
    let [image] = &images.map(|it| it.unwrap().path()).collect::<Vec<_>>()[..] else { panic!() };
    let mut copy = std::process::Command::new("cp");
    copy.arg("-a").arg(image).arg(bench.images().join("volumes"));
    assert!(copy.status().unwrap().success());
    let driver = bench.start().await;
    assert_eq!(driver.list().await.unwrap(), [&*id], "served once, by its own pool");
    let quarantine = bench.images().join("quarantine").join(image.file_name().unwrap());
    assert!(quarantine.exists(), "{}", driver.log());
    driver.stop().await;
}

/// Flips one bit in each copy of a record, as a bad sector or a bad cable does.
fn damage_records(state: &Path, id: &str) {
    let mut file = fs::read(state).unwrap();
    let (needle, mut found) = (format!("\"id\":\"{id}\""), 0);
    for at in 0..file.len() - needle.len() {
        if file[at..].starts_with(needle.as_bytes()) {
            file[at + needle.len() - 2] ^= 1;
            found += 1;
        }
    }
    assert!(found > 0, "no record of {id}");
    fs::write(state, file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_records_are_not_believed() {
    let Some((bench, fast, id)) = with_volume_on_second_pool().await else { return };
    damage_records(&fast.join("state.redb"), &id);
    let driver = bench.start().await;
    let said = refused("damaged", driver.delete(&id).await, Code::Unavailable);
    assert!(said.contains("state.redb") && said.contains("pool rebuild"), "{said}");
    assert_eq!(fs::read_dir(fast.join("quarantine")).unwrap().count(), 0);
    driver.stop().await;
    let mut rebuild = std::process::Command::new(WHARF);
    rebuild.args(["driver", "pool", "rebuild", "--pool"]).arg(&fast);
    assert!(rebuild.status().unwrap().success());
    let driver = bench.start().await;
    assert_eq!(driver.list().await.unwrap(), [&*id]);
    driver.delete(&id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_lost_its_end_is_not_filled_with_zeroes() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let made = driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    let a = Usage::new(&bench, "a", &made.volume_id, mounted(""));
    driver.bring_up(&a).await.unwrap();
    driver.take_down(&a).await.unwrap();
    let whole = driver.snapshot("whole", &a.id).await.unwrap().snapshot_id;
    for image in bench.files() {
        File::options().write(true).open(&image).unwrap().set_len(SIZE / 4).unwrap();
    }
    driver.attach(&a).await.unwrap();
    let said = refused("stage", driver.stage(&a).await, Code::FailedPrecondition);
    assert!(said.contains("its end is lost"), "{said}");
    driver.detach(&a.id).await.unwrap();
    refused("snapshot", driver.snapshot("s", &a.id).await, Code::FailedPrecondition);
    refused("expand", driver.expand(&a.id, SIZE * 2).await, Code::FailedPrecondition);
    for source in [from_volume(&a.id), from_snapshot(&whole)] {
        let mut copy = volume("copy", SIZE, mounted(""));
        copy.volume_content_source = source;
        refused("copy", driver.create(copy).await, Code::FailedPrecondition);
    }
    let health = driver.health(&a.id).await.unwrap();
    assert!(health.contains(&"DataLoss ImageTruncated".to_owned()), "{health:?}");
    for image in bench.files() {
        assert_eq!(fs::metadata(&image).unwrap().len(), SIZE / 4, "{}", image.display());
    }
    driver.delete_snapshot(&whole).await.unwrap();
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}
