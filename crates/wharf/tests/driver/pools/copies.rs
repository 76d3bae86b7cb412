//! Copies from one pool to another.

use tonic::Code;
use wharf_mount::freeze;

use super::{DATA, SIZE, fill, made_on, on_pool};
use crate::{
    bench::{Bench, PoolKind},
    bytes::{checksum_of, write},
    client::{Usage, block, from_snapshot, from_volume, mounted, volume},
    codes::refused,
    running::Running,
};

/// A pool that shares blocks, and one called `fast` that copies.
fn unlike_pools() -> Option<Bench> {
    let bench = Bench::new(PoolKind::Copy)?;
    crate::bench::needs(&["mkfs.xfs"])?;
    let file = bench.path("driver.yaml");
    let (one, two) = (bench.pool(), bench.path("fast"));
    let config = format!(
        "pools:\n- {{name: default, folder: {}, image: 512Mi}}\n- {{name: fast, folder: {}}}\n",
        one.display(),
        two.display()
    );
    std::fs::write(&file, config).unwrap();
    Some(bench.config(&file))
}

async fn copied(
    bench: &Bench,
    driver: &Running,
    pool: &str,
    name: &str,
    source: Option<wharf_proto::csi::VolumeContentSource>,
) -> Usage {
    let mut request = on_pool(pool, volume(name, 2 * SIZE, mounted("")));
    request.volume_content_source = source;
    let made = driver.create(request).await.unwrap();
    Usage::new(bench, name, &made.volume_id, mounted(""))
}

async fn holds(driver: &Running, usage: &Usage, sum: &str) {
    driver.bring_up(usage).await.unwrap();
    assert_eq!(checksum_of(&usage.file("data"), DATA), sum);
    driver.take_down(usage).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_and_a_clone_on_another_pool_are_copies() {
    let Some(bench) = unlike_pools() else { return };
    let driver = bench.start().await;
    for (from, to) in [("default", "fast"), ("fast", "default")] {
        let source = made_on(&bench, &driver, from, &format!("of-{from}")).await.unwrap();
        let sum = fill(&driver, &source).await;
        let name = format!("snapshot-of-{from}");
        let snapshot = driver.snapshot(&name, &source.id).await.unwrap().snapshot_id;
        let restore =
            copied(&bench, &driver, to, &format!("restore-{to}"), from_snapshot(&snapshot)).await;
        let clone =
            copied(&bench, &driver, to, &format!("clone-{to}"), from_volume(&source.id)).await;
        let rows = super::rows(&bench);
        assert_eq!([&restore.id, &clone.id].map(|id| super::pool_of(&rows, id)), [to; 2]);
        // A copy has nothing to do with its source any more.
        driver.bring_up(&source).await.unwrap();
        write(&source.file("data"), &[0; 4096]);
        driver.take_down(&source).await.unwrap();
        driver.delete_snapshot(&snapshot).await.unwrap();
        driver.delete(&source.id).await.unwrap();
        holds(&driver, &restore, &sum).await;
        holds(&driver, &clone, &sum).await;
    }
    let gone = {
        let mut request = on_pool("fast", volume("of-none", SIZE, mounted("")));
        request.volume_content_source = from_volume("vol-none");
        driver.create(request).await
    };
    refused("no source", gone, Code::NotFound);
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_in_use_stands_still_for_a_copy_to_another_pool() {
    let Some(bench) = unlike_pools() else { return };
    let driver = bench.start().await;
    let source = made_on(&bench, &driver, "default", "source").await.unwrap();
    let sum = fill(&driver, &source).await;
    driver.bring_up(&source).await.unwrap();
    driver.kill().await;

    // Killed while the source is frozen for a copy that another pool keeps: the next start lets it
    // go on.
    let mut driver = bench.start_with(&["--fault", "kill:CloneFrozen"]).await;
    let mut request = on_pool("fast", volume("copy", SIZE, mounted("")));
    request.volume_content_source = from_volume(&source.id);
    driver.create(request.clone()).await.unwrap_err();
    driver.killed().await.unwrap();
    // The pool that the copy is on may be missing then.
    let fast = bench.path("fast");
    std::fs::rename(&fast, bench.path("away")).unwrap();
    bench.start().await.kill().await;
    std::fs::rename(bench.path("away"), &fast).unwrap();
    let again = freeze::freeze(&source.staging).expect("thawed by the start");
    again.thaw().unwrap();

    // It is thawed once: a copy that is being made has its source frozen while missing pools are
    // tried again.
    std::fs::rename(&fast, bench.path("away")).unwrap();
    let driver = bench.start().await;
    let frozen = freeze::freeze(&source.staging).unwrap();
    std::fs::rename(bench.path("away"), &fast).unwrap();
    super::is_served(&driver).await;
    freeze::freeze(&source.staging).expect_err("it is frozen already");
    frozen.thaw().unwrap();
    let copy = driver.create(request).await.unwrap().volume_id;
    holds(&driver, &Usage::new(&bench, "copy", &copy, mounted("")), &sum).await;
    driver.take_down(&source).await.unwrap();

    // A block device in use is held still by nobody.
    let raw = driver.create(on_pool("default", volume("raw", SIZE, block()))).await.unwrap();
    let raw = Usage::new(&bench, "raw", &raw.volume_id, block());
    driver.bring_up(&raw).await.unwrap();
    let mut request = on_pool("fast", volume("raw-copy", SIZE, block()));
    request.volume_content_source = from_volume(&raw.id);
    let text = refused("in use", driver.create(request).await, Code::FailedPrecondition);
    assert!(text.contains(&raw.id), "{text}");
    driver.take_down(&raw).await.unwrap();
    driver.stop().await;
}
