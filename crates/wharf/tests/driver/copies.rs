//! Crashes during copies: a copy holds the data that its source had at the time of the copy.

use tonic::Code;
use wharf_proto::csi;

use crate::{
    bench::{Bench, MIB, PoolKind},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, from_snapshot, from_volume, mounted, volume},
    codes::refused,
};

const SIZE: u64 = 16 * MIB;
const DATA: u64 = MIB;
const POOLS: [PoolKind; 2] = [PoolKind::Copy, PoolKind::Reflink(512)];

fn clone_of(id: &str) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        volume_content_source: from_volume(id),
        ..volume("clone", SIZE, mounted(""))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_begun_before_its_source_was_formatted_keeps_the_data_written_since() {
    for pool in POOLS {
        let Some(bench) = Bench::new(pool) else { return };
        let mut driver = bench.start_with(&["--fault", "kill:StageFormatted"]).await;
        let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
        let source = Usage::new(&bench, "a", &id, mounted(""));
        driver.stage(&source).await.unwrap_err();
        driver.killed().await.unwrap();
        bench.reboot();

        let mut driver = bench.start_with(&["--fault", "kill:CloneFrozen"]).await;
        driver.create(clone_of(&id)).await.unwrap_err();
        driver.killed().await.unwrap();

        let driver = bench.start().await;
        driver.bring_up(&source).await.unwrap();
        write(&source.file("data"), &bytes(1, DATA));
        driver.take_down(&source).await.unwrap();
        let clone = driver.create(clone_of(&id)).await.unwrap().volume_id;
        let clone = Usage::new(&bench, "clone", &clone, mounted(""));
        driver.bring_up(&clone).await.unwrap();
        assert_eq!(checksum_of(&clone.file("data"), DATA), checksum(&bytes(1, DATA)), "{pool:?}");
        driver.take_down(&clone).await.unwrap();
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_volume_whose_format_was_cut_is_never_wiped() {
    for pool in POOLS {
        let Some(bench) = Bench::new(pool) else { return };
        let mut driver = bench.start_with(&["--fault", "kill:StageFormatted"]).await;
        let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
        driver.stage(&Usage::new(&bench, "a", &id, mounted(""))).await.unwrap_err();
        driver.killed().await.unwrap();
        bench.reboot();

        let driver = bench.start().await;
        let snapshot = driver.snapshot("s", &id).await.unwrap().snapshot_id;
        let restore = csi::CreateVolumeRequest {
            volume_content_source: from_snapshot(&snapshot),
            ..volume("restored", SIZE, mounted(""))
        };
        for request in [clone_of(&id), restore] {
            let name = request.name.clone();
            let id = driver.create(request).await.unwrap().volume_id;
            let being_made = bench.rows().into_iter().find(|row| row.id == id).unwrap();
            assert_eq!(being_made.content, "blank", "{name}");
            let usage = Usage::new(&bench, &name, &id, mounted(""));
            driver.bring_up(&usage).await.unwrap();
            driver.take_down(&usage).await.unwrap();
        }
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_that_goes_on_after_a_crash_is_as_large_as_its_source_is_now() {
    for pool in POOLS {
        let Some(bench) = Bench::new(pool) else { return };
        let mut driver = bench.start_with(&["--fault", "kill:CreatePromised:2"]).await;
        let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
        let request = csi::CreateVolumeRequest { capacity_range: None, ..clone_of(&id) };
        driver.create(request.clone()).await.unwrap_err();
        driver.killed().await.unwrap();

        let driver = bench.start().await;
        driver.expand(&id, 2 * SIZE).await.unwrap();
        let clone = driver.create(request).await.unwrap();
        assert_eq!(clone.capacity_bytes, i64::try_from(2 * SIZE).unwrap(), "{pool:?}");
        let output = bench.pool_command("check", &[]);
        assert!(output.status.success(), "{pool:?}: {output:?}");
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_goes_on_after_a_crash_without_its_source_is_refused_whole() {
    for pool in POOLS {
        let Some(bench) = Bench::new(pool) else { return };
        let mut driver = bench.start_with(&["--fault", "kill:CreatePromised:2"]).await;
        let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
        let snapshot = driver.snapshot("s", &id).await.unwrap().snapshot_id;
        let restore = csi::CreateVolumeRequest {
            volume_content_source: from_snapshot(&snapshot),
            ..volume("restored", SIZE, mounted(""))
        };
        driver.create(restore.clone()).await.unwrap_err();
        driver.killed().await.unwrap();

        // A snapshot whose deletion failed half-way cannot be restored from.
        let driver = bench.start_with(&["--fault", "fail:SnapshotDeleteBegun"]).await;
        driver.delete_snapshot(&snapshot).await.unwrap_err();
        let said = refused("restore", driver.create(restore).await, Code::NotFound);
        assert!(said.contains(&snapshot), "{said}");
        let names: Vec<_> = bench.rows().into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["a", "s"], "{pool:?}");
        driver.delete_snapshot(&snapshot).await.unwrap();
        driver.delete(&id).await.unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_source_was_deleted_after_a_crash_leaves_no_promise() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    for from_cut in [false, true] {
        let mut driver = bench.start_with(&["--fault", "kill:CreatePromised:2"]).await;
        let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
        let snapshot = driver.snapshot("s", &id).await.unwrap().snapshot_id;
        let source = if from_cut { from_snapshot(&snapshot) } else { from_volume(&id) };
        let copy = csi::CreateVolumeRequest {
            volume_content_source: source,
            ..volume("copy", SIZE, mounted(""))
        };
        driver.create(copy.clone()).await.unwrap_err();
        driver.killed().await.unwrap();

        let driver = bench.start().await;
        driver.delete_snapshot(&snapshot).await.unwrap();
        driver.delete(&id).await.unwrap();
        // Another request of that name does not end the first one's.
        let other = csi::CreateVolumeRequest { capacity_range: None, ..copy.clone() };
        driver.create(other).await.unwrap_err();
        assert_eq!(bench.rows().len(), 1);
        refused("copy", driver.create(copy).await, Code::NotFound);
        assert_eq!(bench.rows(), Vec::new());
        driver.stop().await;
        bench.assert_empty();
    }
}
