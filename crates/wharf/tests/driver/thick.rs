//! A thick volume keeps the space that it was promised, whatever its users do.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use wharf_testkit::process;

use crate::bench::{Bench, MIB, PoolKind, needs};
use crate::bytes::{bytes, write};
use crate::client::{Usage, block, map, mounted, volume};
use crate::running::Running;

const SIZE: u64 = 128 * MIB;
const LIMIT: Duration = Duration::from_secs(60);
const POOLS: [PoolKind; 2] = [PoolKind::Copy, PoolKind::Reflink(1024)];

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
