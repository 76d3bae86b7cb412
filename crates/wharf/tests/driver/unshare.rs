//! Thick volumes whose blocks were shared with a copy: the copy gets blocks of its own, and no writer runs out of space.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use wharf_mount::space;
use wharf_proto::csi;
use wharf_testkit::process::wait_for;

use crate::bench::{Bench, MIB, PoolKind};
use crate::bytes::{bytes, checksum, checksum_of, write};
use crate::client::{Usage, block, from_snapshot, map, mounted, volume};
use crate::running::{PATIENCE, Running};

const SIZE: u64 = 256 * MIB;
const DATA: u64 = 160 * MIB;
const POOL: PoolKind = PoolKind::Reflink(1024);

/// A pool that allows thin volumes, so that blocks must not stay shared.
fn bench() -> Option<Bench> {
    Some(Bench::new(POOL)?.flag("--kinds", "thick,thin"))
}

async fn made(bench: &Bench, driver: &Running, request: csi::CreateVolumeRequest) -> Usage {
    let (name, capability) = (request.name.clone(), request.volume_capabilities[0].clone());
    let id = driver.create(request).await.unwrap().volume_id;
    Usage::new(bench, &name, &id, capability)
}

fn thin(name: &str, size: u64) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        parameters: map(&[("thin", "true")]),
        ..volume(name, size, block())
    }
}

/// Waits until `pool ls` shows no copy that is still being unshared.
async fn unshared(bench: &Bench) {
    wait_for(PATIENCE, "the end of all unsharing", async || {
        bench.rows().iter().all(|row| !row.state.contains("unsharing")).then_some(())
    })
    .await
    .unwrap();
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
    driver.bring_up(&usage).await.unwrap();
    write(&usage.file("data"), &bytes(1, DATA));
    let snapshot = driver.snapshot("snapshot", &usage.id).await.unwrap().snapshot_id;
    unshared(&bench).await;

    let filler = made(&bench, &driver, thin("thin", 900 * MIB)).await;
    driver.bring_up(&filler).await.unwrap();
    let foreign = Foreign::create(&bench);
    fill_device(&filler.target);
    foreign.fill();
    for seed in 2..4 {
        write(&usage.file("data"), &bytes(seed, DATA));
        assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(seed, DATA)));
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
    for usage in [usage, restored] {
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.delete_snapshot(&snapshot).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}
