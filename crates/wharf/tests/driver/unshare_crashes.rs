//! kill -9 at every step of the unsharing of a copy.

use std::process::Command;

use wharf_csi_sdk::fault::FaultPoint;
use wharf_driver::points::Point;
use wharf_proto::csi;
use wharf_testkit::process;

use crate::{
    bench::{Bench, needs},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, block, from_snapshot, from_volume, mounted, volume},
    running::{PATIENCE, Running},
    unshare::{DATA, SIZE, bench, made, shared, unshared},
};

/// A block volume full of the bytes of a seed, with a caller that may have to call again after a
/// crash.
pub(crate) struct Source<'a> {
    bench: &'a Bench,
    pub(crate) driver: Running,
    pub(crate) usage: Usage,
}

impl<'a> Source<'a> {
    pub(crate) async fn new(bench: &'a Bench, plan: &str) -> Self {
        let driver = bench.start_with(&["--fault", plan]).await;
        let usage = made(bench, &driver, volume("source", DATA, block())).await;
        driver.bring_up(&usage).await.unwrap();
        write(&usage.target, &bytes(1, DATA));
        Self { bench, driver, usage }
    }

    pub(crate) fn request(&self, name: &str) -> csi::CreateVolumeRequest {
        csi::CreateVolumeRequest {
            volume_content_source: from_volume(&self.usage.id),
            ..volume(name, DATA, block())
        }
    }

    /// Waits for the kill, then starts a driver that lives.
    pub(crate) async fn restart(&mut self) {
        self.driver.killed().await.unwrap();
        self.driver = self.bench.start().await;
    }

    /// Brings up a volume, compares its bytes and deletes it.
    pub(crate) async fn holds(&self, usage: &Usage, seed: u64) {
        self.driver.bring_up(usage).await.unwrap();
        assert_eq!(checksum_of(&usage.target, DATA), checksum(&bytes(seed, DATA)));
        self.driver.take_down(usage).await.unwrap();
        self.driver.delete(&usage.id).await.unwrap();
    }

    pub(crate) async fn end(self) {
        self.driver.take_down(&self.usage).await.unwrap();
        self.driver.delete(&self.usage.id).await.unwrap();
        assert_eq!(self.bench.rows(), Vec::new());
        self.driver.stop().await;
        self.bench.assert_empty();
    }
}

fn points() -> impl Iterator<Item = &'static str> {
    let names = Point::ALL.iter().map(|point| point.name());
    names.filter(|name| name.starts_with("Reserve") || name.starts_with("Unshare"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_of_the_unsharing_of_a_snapshot_costs_nothing() {
    let Some(bench) = bench() else { return };
    for point in points() {
        let mut source = Source::new(&bench, &format!("kill:{point}")).await;
        // The call is cut, or its snapshot is cut short in the background.
        let _ = source.driver.snapshot("snapshot", &source.usage.id).await;
        source.driver.killed().await.unwrap();
        // The volume is written also while no driver runs.
        let old = if point.starts_with("Reserve") { 2 } else { 1 };
        write(&source.usage.target, &bytes(2, DATA));
        source.driver = bench.start().await;
        let snapshot = source.driver.snapshot("snapshot", &source.usage.id).await.unwrap();
        unshared(&bench).await;
        for row in bench.rows() {
            assert_eq!(shared(&row.image), 0, "{point}: {row:?}");
        }
        write(&source.usage.target, &bytes(3, DATA));
        let restore = csi::CreateVolumeRequest {
            volume_content_source: from_snapshot(&snapshot.snapshot_id),
            ..volume("restored", DATA, block())
        };
        let restored = made(&bench, &source.driver, restore).await;
        source.holds(&restored, old).await;
        source.driver.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        source.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_of_the_unsharing_of_a_clone_costs_nothing() {
    let Some(bench) = bench() else { return };
    for point in points() {
        let mut source = Source::new(&bench, &format!("kill:{point}")).await;
        let _ = source.driver.create(source.request("clone")).await;
        source.restart().await;
        let clone = made(&bench, &source.driver, source.request("clone")).await;
        // A stage waits until the clone has blocks of its own.
        source.driver.bring_up(&clone).await.unwrap();
        assert_eq!(shared(&bench.rows()[0].image), 0, "{point}");
        write(&source.usage.target, &bytes(2, DATA));
        source.driver.take_down(&clone).await.unwrap();
        source.holds(&clone, 1).await;
        source.end().await;
    }
}

/// The volume overwrites its blocks in place as soon as the snapshot has others. A power cut must
/// not bring the snapshot back to the blocks that were overwritten.
#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_before_the_new_blocks_are_on_disk_leaves_a_snapshot_as_it_was() {
    if needs(&["xfs_io"]).is_none() {
        return;
    }
    let Some(bench) = bench() else { return };
    let mut source = Source::new(&bench, "kill:UnshareCloned").await;
    // Its image is written without its device, which a pool that is shut down would leave behind.
    source.driver.take_down(&source.usage).await.unwrap();
    let image = bench.rows().remove(0).image;
    let _ = source.driver.snapshot("snapshot", &source.usage.id).await;
    source.driver.killed().await.unwrap();
    // Without a flush, which would write the pool's journal, too.
    let mut write = Command::new("dd");
    write.args(["if=/dev/zero", "bs=1M", "count=20", "oflag=direct", "conv=notrunc"]);
    write.arg(format!("of={}", image.display()));
    process::run(&write, PATIENCE).await.unwrap();
    let mut cut = Command::new("xfs_io");
    process::run(cut.args(["-x", "-c", "shutdown"]).arg(bench.images()), PATIENCE).await.unwrap();
    bench.reboot();

    let driver = bench.start().await;
    unshared(&bench).await;
    let row = bench.rows().into_iter().find(|row| row.kind == "snapshot").unwrap();
    assert_eq!(checksum_of(&row.image, DATA), checksum(&bytes(1, DATA)));
    assert_eq!(shared(&row.image), 0);
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_snapshots_is_unshared_after_a_crash_in_the_middle() {
    let Some(bench) = bench() else { return };
    let driver = bench.start_with(&["--fault", "kill:ReserveMade:2"]).await;
    let mut usages = Vec::new();
    for name in ["a", "b"] {
        let usage = made(&bench, &driver, volume(name, SIZE, mounted("ext4"))).await;
        driver.bring_up(&usage).await.unwrap();
        write(&usage.file("data"), &bytes(1, DATA));
        usages.push(usage);
    }
    let ids: Vec<_> = usages.iter().map(|usage| usage.id.as_str()).collect();
    let mut driver = driver;
    driver.group("group", &ids).await.unwrap_err();
    driver.killed().await.unwrap();
    let driver = bench.start().await;
    let group = driver.group("group", &ids).await.unwrap();
    unshared(&bench).await;
    for row in bench.rows() {
        assert_eq!(shared(&row.image), 0, "{row:?}");
    }
    driver.delete_group(&group).await.unwrap();
    for usage in usages {
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}
