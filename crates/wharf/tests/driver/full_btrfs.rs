//! A btrfs that is full to the last block: it gives space back only when a transaction is over.

use std::{fs::File, io::Write, path::Path};

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    client::{Usage, map, mounted, volume},
};

const SIZE: u64 = 64 * MIB;

/// Writes until only `rest` bytes fit.
fn fill(path: &Path, rest: u64) {
    let mut file = File::create(path).unwrap();
    for size in [MIB, 64 << 10, 4096] {
        let block = vec![0xff; usize::try_from(size).unwrap()];
        while file.write_all(&block).and_then(|()| file.sync_data()).is_ok() {}
    }
    let size = file.metadata().unwrap().len();
    file.set_len(size - rest).unwrap();
    rustix::fs::syncfs(&file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_deleted_at_once_after_a_repair_that_had_no_room() {
    if needs(&["debugfs"]).is_none() {
        return;
    }
    // A copy that runs out of room takes all of it, and gives it back only when the transaction is
    // over.
    for (thin, rest) in [("true", 0), ("true", 24 * MIB), ("false", 0), ("false", 24 * MIB)] {
        let Some(bench) = Bench::with_thin(PoolKind::Btrfs(512)) else { return };
        let driver = bench.start().await;
        let mut request = volume("a", SIZE, mounted("ext4"));
        request.parameters = map(&[("thin", thin)]);
        let id = driver.create(request).await.unwrap().volume_id;
        let usage = Usage::new(&bench, "a", &id, mounted("ext4"));
        driver.bring_up(&usage).await.unwrap();
        crate::bytes::write(&usage.file("data"), &crate::bytes::bytes(1, 32 * MIB));
        driver.take_down(&usage).await.unwrap();
        fill(&bench.images().join("filler"), rest);
        let failed = bench.pool_command("repair", &[&id, "--yes"]);
        assert!(!failed.status.success(), "thin {thin}: {failed:?}");
        driver
            .delete(&id)
            .await
            .unwrap_or_else(|status| panic!("thin {thin}, {rest} bytes left: {status}"));
        std::fs::remove_file(bench.images().join("filler")).unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_thick_volume_on_a_full_pool_is_staged_without_a_warning() {
    for pool in [PoolKind::Copy, PoolKind::Reflink(512), PoolKind::Btrfs(512)] {
        let Some(bench) = Bench::with_thin(pool) else { return };
        let driver = bench.start().await;
        let id = driver.create(volume("a", SIZE, mounted("ext4"))).await.unwrap().volume_id;
        let usage = Usage::new(&bench, "a", &id, mounted("ext4"));
        driver.bring_up(&usage).await.unwrap();
        driver.take_down(&usage).await.unwrap();
        // The disk of a `Copy` pool is everybody's.
        if pool != PoolKind::Copy {
            fill(&bench.images().join("filler"), 0);
        }
        driver.bring_up(&usage).await.unwrap();
        assert!(!driver.log().contains("failed to allocate"), "{pool:?}: {}", driver.tail());
        driver.take_down(&usage).await.unwrap();
        driver.stop().await;
    }
}
