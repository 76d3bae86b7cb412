//! Copies that crashes fall on: what a copy holds is what its source held when it was copied.

use wharf_proto::csi;

use crate::bench::{Bench, MIB, PoolKind};
use crate::bytes::{bytes, checksum, checksum_of, write};
use crate::client::{Usage, from_snapshot, from_volume, mounted, volume};

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
