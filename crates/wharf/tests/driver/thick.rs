//! A thick volume keeps its promised space, whatever its users do.

use std::{
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tonic::Code;
use wharf_testkit::process;

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, block, from_snapshot, map, mounted, volume},
    running::Running,
};

const SIZE: u64 = 128 * MIB;
const LIMIT: Duration = Duration::from_secs(60);
const POOLS: [PoolKind; 3] = [PoolKind::Copy, PoolKind::Reflink(1024), PoolKind::Btrfs(2048)];

async fn staged(bench: &Bench, driver: &Running, thin: bool, raw: bool) -> (Usage, PathBuf) {
    let capability = if raw { block() } else { mounted("ext4") };
    let mut request = volume("volume", SIZE, capability.clone());
    request.parameters = map(&[("thin", if thin { "true" } else { "false" })]);
    let id = driver.create(request).await.unwrap().volume_id;
    let usage = Usage::new(bench, "volume", &id, capability);
    driver.bring_up(&usage).await.unwrap();
    let image = bench.images().join("volumes").read_dir().unwrap().next().unwrap();
    (usage, image.unwrap().path())
}

fn allocated(image: &Path) -> u64 {
    image.metadata().unwrap().blocks() * 512
}

/// Gives back all space that the volume does not need, as its user may at any time.
async fn give_back(usage: &Usage, raw: bool) -> bool {
    let mut command = match raw {
        true => Command::new("blkdiscard"),
        false => Command::new("fstrim"),
    };
    process::run(command.arg(&usage.target), LIMIT).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discard_takes_no_space_from_a_thick_volume() {
    if needs(&["fstrim", "blkdiscard"]).is_none() {
        return;
    }
    for pool in POOLS {
        for raw in [true, false] {
            let Some(bench) = Bench::new(pool) else { return };
            let bench = bench.flag("--kinds", "thick,thin");
            let driver = bench.start().await;
            for thin in [false, true] {
                let (usage, image) = staged(&bench, &driver, thin, raw).await;
                let path = if raw { usage.target.clone() } else { usage.file("data") };
                write(&path, &bytes(1, 32 * MIB));
                if !raw {
                    std::fs::remove_file(path).unwrap();
                }
                let before = allocated(&image);
                let gave_back = give_back(&usage, raw).await;
                assert_eq!(gave_back, thin, "{pool:?}, block {raw}");
                match thin {
                    true => assert!(allocated(&image) < before, "{pool:?}, block {raw}"),
                    false => assert!(allocated(&image) >= SIZE, "{pool:?}, block {raw}"),
                }
                driver.take_down(&usage).await.unwrap();
                driver.delete(&usage.id).await.unwrap();
            }
            driver.stop().await;
            bench.assert_empty();
        }
    }
}

/// Takes all that is left of the pool, as a foreign program on its disk may.
fn fill(bench: &Bench) -> PathBuf {
    let path = bench.images().join("foreign");
    let mut file = std::fs::File::create(&path).unwrap();
    for size in [16 * MIB, MIB, 4096] {
        let block = vec![1; usize::try_from(size).unwrap()];
        while file.write_all(&block).and_then(|()| file.sync_data()).is_ok() {}
    }
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thick_volume_is_overwritten_on_a_full_pool() {
    for pool in [PoolKind::Reflink(1024), PoolKind::Btrfs(2048)] {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let (usage, _) = staged(&bench, &driver, false, true).await;
        write(&usage.target, &bytes(1, SIZE));
        // On btrfs a snapshot is a copy, and shares nothing with the volume.
        let snapshot = match pool {
            PoolKind::Btrfs(_) => {
                driver.unpublish(&usage).await.unwrap();
                driver.unstage(&usage).await.unwrap();
                let snapshot = driver.snapshot("snapshot", &usage.id).await.unwrap();
                driver.bring_up(&usage).await.unwrap();
                Some(snapshot.snapshot_id)
            }
            _ => None,
        };
        let foreign = fill(&bench);
        for seed in 2..5 {
            write(&usage.target, &bytes(seed, SIZE));
            assert_eq!(checksum_of(&usage.target, SIZE), checksum(&bytes(seed, SIZE)), "{pool:?}");
        }
        std::fs::remove_file(foreign).unwrap();
        if let Some(snapshot) = snapshot {
            driver.delete_snapshot(&snapshot).await.unwrap();
        }
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
        driver.stop().await;
    }
}

/// btrfs writes what is overwritten to a new place, unless it is told not to; then blocks cannot be
/// shared.
#[tokio::test(flavor = "multi_thread")]
async fn on_btrfs_thick_volumes_are_copied_and_thin_ones_share_blocks() {
    let Some(bench) = Bench::new(PoolKind::Btrfs(2048)) else { return };
    let bench = bench.flag("--kinds", "thick,thin");
    let driver = bench.start().await;
    for (thin, backend) in [(false, "image-copy"), (true, "image-reflink thin")] {
        let (usage, _) = staged(&bench, &driver, thin, false).await;
        write(&usage.file("data"), &bytes(1, MIB));
        let snapshot = driver.snapshot("snapshot", &usage.id).await.unwrap().snapshot_id;
        let mut request = volume("restored", SIZE, mounted("ext4"));
        request.parameters = map(&[("thin", if thin { "true" } else { "false" })]);
        request.volume_content_source = from_snapshot(&snapshot);
        let id = driver.create(request).await.unwrap().volume_id;
        let restored = Usage::new(&bench, "restored", &id, mounted("ext4"));
        driver.bring_up(&restored).await.unwrap();
        assert_eq!(checksum_of(&restored.file("data"), MIB), checksum(&bytes(1, MIB)));
        let rows = bench.rows();
        let backends: Vec<_> =
            rows.iter().filter(|row| row.kind == "volume").map(|row| &row.backend).collect();
        assert_eq!(backends, [backend, backend]);
        for usage in [usage, restored] {
            driver.take_down(&usage).await.unwrap();
            driver.delete(&usage.id).await.unwrap();
        }
        driver.delete_snapshot(&snapshot).await.unwrap();
    }
    let mut request = volume("asked", SIZE, block());
    request.parameters = map(&[("backend", "image-reflink")]);
    let status = driver.create(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains("btrfs"), "{status}");
    driver.stop().await;
}
