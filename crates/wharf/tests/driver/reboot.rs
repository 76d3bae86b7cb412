//! Reboots, a lost state file, and foreign files.

use std::path::{Path, PathBuf};

use wharf_proto::csi::{self, volume_capability::access_mode::Mode};

use crate::{
    bench::{Bench, MIB, PoolKind, mounts_below},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, block, from_snapshot, map, mounted, mounted_as, text, volume},
    running::PATIENCE,
};

const SIZE: u64 = 16 * MIB;
const DATA: u64 = MIB / 4;
const POOL: PoolKind = PoolKind::Reflink(1024);

/// A staged and published volume of each kind, with data.
struct Written {
    mounted: Usage,
    device: Usage,
}

impl Written {
    async fn new(bench: &Bench, driver: &crate::running::Running) -> Self {
        let one_pod = mounted_as("", &[], Mode::SingleNodeSingleWriter);
        let made = driver.create(volume("mounted", SIZE, one_pod.clone())).await.unwrap();
        let mounted = Usage::new(bench, "mounted", &made.volume_id, one_pod);
        let made = driver.create(volume("device", SIZE, block())).await.unwrap();
        let device = Usage::new(bench, "device", &made.volume_id, block());
        for usage in [&mounted, &device] {
            driver.attach(usage).await.unwrap();
            driver.bring_up(usage).await.unwrap();
        }
        write(&mounted.file("data"), &bytes(1, DATA));
        write(&device.target, &bytes(2, DATA));
        Self { mounted, device }
    }

    #[track_caller]
    fn assert_data(&self) {
        assert_eq!(checksum_of(&self.mounted.file("data"), DATA), checksum(&bytes(1, DATA)));
        assert_eq!(checksum_of(&self.device.target, DATA), checksum(&bytes(2, DATA)));
    }
}

fn state_of(bench: &Bench, id: &str) -> String {
    bench.rows().into_iter().find(|row| row.id == id).unwrap().state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_leaves_every_mount_as_it_is() {
    for pool in [PoolKind::Copy, POOL] {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let written = Written::new(&bench, &driver).await;
        driver.kill().await;
        let before = mounts_below(&bench.path(""));
        let driver = bench.start().await;
        assert_eq!(mounts_below(&bench.path("")), before);
        written.assert_data();
        for usage in [&written.mounted, &written.device] {
            assert_eq!(state_of(&bench, &usage.id), "ready, published 1x");
            driver.bring_up(usage).await.unwrap();
        }
        assert_eq!(mounts_below(&bench.path("")), before);
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_stages_are_forgotten_and_the_data_is_there() {
    for pool in [PoolKind::Copy, POOL] {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = bench.start().await;
        let mut written = Written::new(&bench, &driver).await;
        driver.kill().await;
        bench.reboot();
        let driver = bench.start().await;
        for usage in [&written.mounted, &written.device] {
            assert_eq!(state_of(&bench, &usage.id), "ready, attached");
        }
        // Its pod is another one now, and the volume is for one pod.
        written.mounted.target = bench.path("pods").join("another");
        for usage in [&written.mounted, &written.device] {
            driver.bring_up(usage).await.unwrap();
        }
        written.assert_data();
        for usage in [&written.mounted, &written.device] {
            driver.take_down(usage).await.unwrap();
            driver.detach(&usage.id).await.unwrap();
            driver.delete(&usage.id).await.unwrap();
        }
        // What a pod of before the reboot was given is an empty folder of the node.
        remove_leftovers(&bench.path("pods"));
        driver.stop().await;
        bench.assert_empty();
    }
}

fn remove_leftovers(folder: &Path) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        std::fs::remove_dir(&path).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unpublish_after_a_reboot_removes_the_target_of_before() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let written = Written::new(&bench, &driver).await;
    driver.kill().await;
    bench.reboot();
    let driver = bench.start().await;
    for usage in [&written.mounted, &written.device] {
        assert!(usage.target.exists());
        driver.take_down(usage).await.unwrap();
        assert!(!usage.target.exists());
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_state_file_is_rebuilt_from_the_images() {
    for pool in [PoolKind::Copy, POOL] {
        let Some(bench) = Bench::new(pool) else { return };
        let bench = bench.flag("--kinds", "thick,thin");
        let driver = bench.start().await;
        let written = Written::new(&bench, &driver).await;
        let (a, b) = (&written.mounted, &written.device);
        driver.take_down(b).await.unwrap();
        driver.modify(&a.id, &[("riops", "100")]).await.unwrap();
        let snapshot = driver.snapshot("snapshot", &a.id).await.unwrap();
        let group = driver.group("group", &[&a.id, &b.id]).await.unwrap();
        let xfs = csi::CreateVolumeRequest {
            parameters: map(&[("csi.storage.k8s.io/fstype", "xfs"), ("thin", "true")]),
            mutable_parameters: map(&[("wbps", "1000000")]),
            ..volume("xfs", 300 * MIB, mounted(""))
        };
        let thin = driver.create(xfs.clone()).await.unwrap();
        driver.take_down(a).await.unwrap();
        driver.expand(&b.id, 2 * SIZE).await.unwrap();
        crate::unshare::unshared(&bench).await;
        let before = bench.rows();
        driver.stop().await;

        std::fs::remove_file(bench.images().join("state.redb")).unwrap();
        let rebuilt = bench.pool_command("rebuild", &[]);
        assert!(rebuilt.status.success(), "{rebuilt:?}");
        let said = String::from_utf8(rebuilt.stdout).unwrap();
        assert!(said.contains("3 volumes, 3 snapshots, 1 groups"), "{said}");

        let driver = bench.start().await;
        let place = |row: &wharf_driver::inspect::Row| {
            let state = row.state.replace(", attached", "");
            (
                row.kind.clone(),
                row.id.clone(),
                row.name.clone(),
                row.size,
                row.content.clone(),
                state,
            )
        };
        let after: Vec<_> = bench.rows().iter().map(place).collect();
        assert_eq!(after, before.iter().map(place).collect::<Vec<_>>());
        assert_eq!(driver.create(xfs).await.unwrap(), thin);
        assert_eq!(driver.snapshot("snapshot", &a.id).await.unwrap(), snapshot);
        let mut again = driver.group("group", &[&a.id, &b.id]).await.unwrap();
        again.snapshots.sort_by(|a, b| a.snapshot_id.cmp(&b.snapshot_id));
        let mut group = group;
        group.snapshots.sort_by(|a, b| a.snapshot_id.cmp(&b.snapshot_id));
        assert_eq!(again, group);
        for usage in [a, b] {
            driver.bring_up(usage).await.unwrap();
        }
        written.assert_data();
        let restored = csi::CreateVolumeRequest {
            volume_content_source: from_snapshot(&snapshot.snapshot_id),
            ..volume("restored", SIZE, mounted(""))
        };
        let restored = driver.create(restored).await.unwrap();
        let restored = Usage::new(&bench, "restored", &restored.volume_id, mounted(""));
        driver.bring_up(&restored).await.unwrap();
        assert_eq!(checksum_of(&restored.file("data"), DATA), checksum(&bytes(1, DATA)));
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_nobody_knows_is_put_aside_and_never_deleted() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    bench.start().await.stop().await;
    let orphans = ["volumes/left.img", "snapshots/over.img"].map(|name| bench.images().join(name));
    for orphan in &orphans {
        std::fs::write(orphan, b"someone's data").unwrap();
    }
    let driver = bench.start().await;
    let aside: Vec<PathBuf> = orphans
        .iter()
        .map(|orphan| bench.images().join("quarantine").join(orphan.file_name().unwrap()))
        .collect();
    for (orphan, aside) in orphans.iter().zip(&aside) {
        assert!(!orphan.exists());
        assert_eq!(std::fs::read(aside).unwrap(), b"someone's data");
    }
    driver.kill().await;
    bench.start().await.stop().await;
    assert!(aside.iter().all(|aside| aside.exists()));
    let check = bench.pool_command("check", &[]);
    assert_eq!(check.status.code(), Some(1));
    assert!(String::from_utf8(check.stdout).unwrap().contains("in quarantine"));
}

/// A child of a killed driver holds the driver's lock until it calls exec.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_for_the_lock_that_a_killed_driver_leaves_for_a_moment() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    bench.start().await.kill().await;
    let lock = std::fs::File::open(bench.path("state/local.csi.wharf/lock")).unwrap();
    lock.lock().unwrap();
    let unlock = wharf_testkit::process::wait_for(PATIENCE, "the driver to wait", async || {
        let log = std::fs::read_to_string(bench.path("driver.log")).unwrap();
        log.contains("waiting for lock of driver's folder").then(|| lock.unlock().unwrap())
    });
    let (driver, unlocked) = tokio::join!(bench.start(), unlock);
    unlocked.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_driver_on_a_pool_is_refused() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let mut second = bench.command(&[]);
    second.args(["--controller-endpoint", &format!("unix://{}", text(&bench.path("other.sock")))]);
    let output = second.output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("in use by another process"), "{said}");
    driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    assert_eq!(driver.expand(&driver.list().await.unwrap()[0], 2 * SIZE).await.unwrap(), 2 * SIZE);
    driver.stop().await;
}
