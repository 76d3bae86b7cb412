//! `wharf driver pool path` and `repair`: for a person whose volume the driver refuses.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tonic::Code;
use wharf_testkit::process;

use crate::bench::{Bench, MIB, PoolKind, needs};
use crate::client::{Usage, mounted, volume};
use crate::running::Running;

const LIMIT: Duration = Duration::from_secs(60);

/// Takes the root folder of the ext4 in an image away, and has the filesystem say that it has errors.
async fn damage(image: &Path) {
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
