//! Kinds of volumes, limits of thin ones, and the sizes in GetCapacity.

use std::{fs::File, io::Write, path::PathBuf, sync::Arc};

use prometheus_client::{encoding::text, registry::Registry};
use tonic::Code;
use wharf_driver::{
    config::PoolConfig,
    metrics::PoolMetrics,
    pools::{Pools, PoolsOptions},
    state_dir::StateDir,
};
use wharf_mount::{freeze, space};
use wharf_proto::csi;
use wharf_testkit::process::wait_for;

use crate::{
    bench::{Bench, MIB, NODE, PoolKind},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, block, from_snapshot, from_volume, map, mounted, volume},
    codes::refused,
    running::{PATIENCE, Running},
};

const SIZE: u64 = 16 * MIB;
/// More than the floor.
const WRITTEN: u64 = 96 * MIB;
const POOL: PoolKind = PoolKind::Reflink(512);
const THIN: [(&str, &str); 1] = [("thin", "true")];
const THICK: [(&str, &str); 1] = [("thin", "false")];

fn bench(kinds: &str) -> Option<Bench> {
    Some(Bench::new(POOL)?.flag("--kinds", kinds))
}

fn of_kind(name: &str, size: u64, kind: &[(&str, &str)]) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest { parameters: map(kind), ..volume(name, size, block()) }
}

fn inline(bench: &Bench, name: &str, kind: &[(&str, &str)]) -> Usage {
    let mut usage = Usage::new(bench, name, &format!("csi-{name}"), mounted(""));
    usage.staging = PathBuf::new();
    usage.context = map(&[(wharf_facts::context::EPHEMERAL, "true"), ("size", "16Mi")]);
    usage.context.extend(map(kind));
    usage
}

async fn largest(driver: &Running, kind: &[(&str, &str)]) -> u64 {
    let told = driver.capacity_of(kind).await.unwrap();
    u64::try_from(told.maximum_volume_size.unwrap()).unwrap()
}

/// Brings the pool's filesystem to rest: what XFS still has to give back of deleted files is given
/// back by a freeze.
fn settle(bench: &Bench) {
    freeze::freeze(&bench.images()).unwrap().thaw().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_the_pool_does_not_allow_is_refused_by_name() {
    for (kinds, allowed, other) in [("thick", THICK, THIN), ("thin", THIN, THICK)] {
        let Some(bench) = bench(kinds) else { return };
        let driver = bench.start().await;
        let made = driver.create(of_kind("allowed", SIZE, &allowed)).await.unwrap().volume_id;
        let answer = driver.create(of_kind("other", SIZE, &other)).await;
        let said = refused("other", answer, Code::InvalidArgument);
        let expected = format!(
            "parameters.thin: expected {}; the pool allows {kinds} volumes only: --kinds thick,thin allows both",
            allowed[0].1
        );
        assert!(said.contains(&expected), "{said}");
        let told = driver.capacity_of(&other).await.unwrap();
        assert_eq!((told.available_capacity, told.maximum_volume_size), (0, Some(0)));
        assert!(largest(&driver, &allowed).await > 0);

        let answer = driver.publish(&inline(&bench, "other", &other)).await;
        let said = refused("inline", answer, Code::InvalidArgument);
        assert!(said.contains("volume_context.thin: expected"), "{said}");
        let pod = inline(&bench, "allowed", &allowed);
        driver.publish(&pod).await.unwrap();
        driver.unpublish(&pod).await.unwrap();
        driver.delete(&made).await.unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_kind_that_is_no_longer_allowed_stay_usable() {
    let Some(bench) = Bench::new(POOL) else { return };
    let driver = bench.start_with(&["--kinds", "thick,thin"]).await;
    let request = of_kind("thin", SIZE, &THIN);
    let id = driver.create(request.clone()).await.unwrap().volume_id;
    driver.stop().await;
    let driver = bench.start().await;
    assert_eq!(driver.create(request).await.unwrap().volume_id, id, "a call that is repeated");
    let usage = Usage::new(&bench, "thin", &id, block());
    driver.bring_up(&usage).await.unwrap();
    write(&usage.target, &bytes(1, MIB));
    assert_eq!(driver.expand(&id, 2 * SIZE).await.unwrap(), 2 * SIZE);
    let snapshot = driver.snapshot("snapshot", &id).await.unwrap().snapshot_id;
    driver.delete_snapshot(&snapshot).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.delete(&id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn thin_volumes_are_promised_no_more_than_their_ratio() {
    let Some(bench) = bench("thick,thin") else { return };
    let bench = bench.flag("--thin-ratio", "0.5");
    let driver = bench.start().await;
    let first = driver.create(of_kind("first", SIZE, &THIN)).await.unwrap().volume_id;
    let rest = largest(&driver, &THIN).await;
    let answer = driver.create(of_kind("more", rest + 4096, &THIN)).await;
    let said = refused("more", answer, Code::ResourceExhausted);
    assert!(said.contains("--thin-ratio"), "{said}");
    let all = driver.create(of_kind("all", rest, &THIN)).await.unwrap().volume_id;
    assert_eq!(largest(&driver, &THIN).await, 0);

    let clone = csi::CreateVolumeRequest {
        volume_content_source: from_volume(&first),
        ..of_kind("clone", SIZE, &THIN)
    };
    let said = refused("clone", driver.create(clone).await, Code::ResourceExhausted);
    assert!(said.contains("--thin-ratio"), "{said}");
    let snapshot = driver.snapshot("snapshot", &first).await.unwrap().snapshot_id;
    let restore = csi::CreateVolumeRequest {
        volume_content_source: from_snapshot(&snapshot),
        ..of_kind("restored", SIZE, &THIN)
    };
    refused("restore", driver.create(restore).await, Code::ResourceExhausted);
    let said = refused("expand", driver.expand(&first, 2 * SIZE).await, Code::OutOfRange);
    assert!(said.contains("--thin-ratio"), "{said}");
    // Thick volumes are bound by the disk alone.
    driver.create(of_kind("thick", SIZE, &THICK)).await.unwrap();
    driver.delete(&all).await.unwrap();
    assert_eq!(driver.expand(&first, 2 * SIZE).await.unwrap(), 2 * SIZE);
    driver.stop().await;
}

/// A foreign file that leaves `left` bytes of the pool.
fn leave(bench: &Bench, left: u64) -> PathBuf {
    let path = bench.images().join("foreign");
    let file = File::create(&path).unwrap();
    let available = space::usage(&bench.images()).unwrap().available;
    space::allocate(&file, available - left, true).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_thin_is_made_below_the_thin_floor_and_health_says_so() {
    let Some(bench) = bench("thick,thin") else { return };
    let bench = bench.flag("--thin-floor", "150Mi").flag("--floor", "32Mi");
    let driver = bench.start().await;
    let thin = driver.create(of_kind("thin", SIZE, &THIN)).await.unwrap().volume_id;
    let thick = driver.create(of_kind("thick", SIZE, &THICK)).await.unwrap().volume_id;
    assert_eq!(driver.storage_health().await.unwrap(), Vec::<String>::new());
    let foreign = leave(&bench, 120 * MIB);

    assert_eq!(driver.storage_health().await.unwrap(), ["StorageDegraded PoolAlmostFull"]);
    let health = driver.health(&thin).await.unwrap();
    assert!(health.len() == 1 && health[0].ends_with("Degraded PoolAlmostFull"), "{health:?}");
    assert_eq!(driver.health(&thick).await.unwrap(), Vec::<String>::new());
    assert_eq!(largest(&driver, &THIN).await, 0);
    let clone = csi::CreateVolumeRequest {
        volume_content_source: from_volume(&thin),
        ..of_kind("clone", SIZE, &THIN)
    };
    for (what, answer) in [
        ("thin", driver.create(of_kind("more", SIZE, &THIN)).await.map(drop)),
        ("clone", driver.create(clone).await.map(drop)),
        ("snapshot", driver.snapshot("snapshot", &thin).await.map(drop)),
        ("group", driver.group("group", &[&thin, &thick]).await.map(drop)),
    ] {
        let said = refused(what, answer, Code::ResourceExhausted);
        assert!(said.contains("--thin-floor"), "{what}: {said}");
    }
    refused("expand", driver.expand(&thin, 2 * SIZE).await, Code::OutOfRange);
    // Thick volumes and their snapshots are bound by the floor alone.
    driver.create(of_kind("another", SIZE, &THICK)).await.unwrap();
    driver.snapshot("of-thick", &thick).await.unwrap();

    std::fs::remove_file(foreign).unwrap();
    wait_for(PATIENCE, "the space of before", async || {
        driver.storage_health().await.unwrap().is_empty().then_some(())
    })
    .await
    .unwrap();
    driver.expand(&thin, 2 * SIZE).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thin_writer_on_a_full_pool_fails_alone() {
    let Some(bench) = bench("thick,thin") else { return };
    let driver = bench.start().await;
    let thin = driver.create(of_kind("thin", 440 * MIB, &THIN)).await.unwrap().volume_id;
    let thin = Usage::new(&bench, "thin", &thin, block());
    let thick = driver.create(volume("thick", 32 * MIB, mounted(""))).await.unwrap().volume_id;
    let thick = Usage::new(&bench, "thick", &thick, mounted(""));
    for usage in [&thin, &thick] {
        driver.bring_up(usage).await.unwrap();
    }
    let mut device = File::options().write(true).open(&thin.target).unwrap();
    let block = vec![1; usize::try_from(MIB).unwrap()];
    while device.write_all(&block).and_then(|()| device.sync_data()).is_ok() {}
    write(&thick.file("data"), &bytes(1, SIZE));
    assert_eq!(checksum_of(&thick.file("data"), SIZE), checksum(&bytes(1, SIZE)));
    drop(device);
    driver.take_down(&thin).await.unwrap();
    driver.delete(&thin.id).await.unwrap();
    driver.take_down(&thick).await.unwrap();
    driver.stop().await;
}

/// Creates what GetCapacity tells as the largest volume; one block more is refused.
async fn can_be_made(bench: &Bench, driver: &Running, kind: &[(&str, &str)], case: &str) {
    settle(bench);
    let size = largest(driver, kind).await;
    assert!(size > 0, "{case}");
    let more = driver.create(of_kind("more", size + 4096, kind)).await.unwrap_err();
    // No volume is larger than the disk.
    let codes = [Code::ResourceExhausted, Code::OutOfRange];
    assert!(codes.contains(&more.code()), "{case}: {more}");
    let made = driver.create(of_kind("largest", size, kind)).await;
    let id = made.unwrap_or_else(|status| panic!("{case}: {status}")).volume_id;
    driver.delete(&id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_volume_that_capacity_tells_can_be_made_and_none_larger() {
    let Some(bench) = bench("thick,thin") else { return };
    let bench = bench.flag("--thin-ratio", "1.2").flag("--thin-floor", "100Mi");
    let driver = bench.start().await;
    let both = [("thick", THICK), ("thin", THIN)];
    for (name, kind) in both {
        can_be_made(&bench, &driver, &kind, &format!("{name}, empty pool")).await;
    }
    // A volume that is written, with a snapshot that is unshared and one that is not yet.
    let id = driver.create(volume("a", WRITTEN, block())).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, block());
    driver.bring_up(&usage).await.unwrap();
    write(&usage.target, &bytes(1, WRITTEN));
    driver.snapshot("s", &id).await.unwrap();
    wait_for(PATIENCE, "the end of the unsharing", async || {
        bench.rows().iter().all(|row| !row.state.contains("unsharing")).then_some(())
    })
    .await
    .unwrap();
    for (name, kind) in both {
        can_be_made(&bench, &driver, &kind, &format!("{name}, with a snapshot")).await;
    }
    // A clone that fills the pool takes no more than its size while it is made.
    settle(&bench);
    let clone = csi::CreateVolumeRequest {
        volume_content_source: from_volume(&id),
        ..of_kind("clone", largest(&driver, &THICK).await, &THICK)
    };
    let clone = driver.create(clone).await.unwrap().volume_id;
    driver.delete(&clone).await.unwrap();
    let thin = driver.create(of_kind("b", 100 * MIB, &THIN)).await.unwrap().volume_id;
    driver.snapshot("t", &thin).await.unwrap();
    for (name, kind) in both {
        can_be_made(&bench, &driver, &kind, &format!("{name}, near the ratio")).await;
    }
    let foreign = leave(&bench, 110 * MIB);
    can_be_made(&bench, &driver, &THIN, "thin, near its floor").await;
    std::fs::remove_file(foreign).unwrap();
    settle(&bench);
    let foreign = leave(&bench, 90 * MIB);
    assert_eq!(largest(&driver, &THIN).await, 0);
    can_be_made(&bench, &driver, &THICK, "thick, near the floor").await;
    std::fs::remove_file(foreign).unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_what_is_promised_thin_and_left_to_unshare() {
    let Some(bench) = bench("thick,thin") else { return };
    let mut driver = bench.start_with(&["--fault", "kill:UnshareCopied"]).await;
    driver.create(of_kind("thin", 2 * SIZE, &THIN)).await.unwrap();
    let id = driver.create(volume("a", SIZE, block())).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, block());
    driver.bring_up(&usage).await.unwrap();
    write(&usage.target, &bytes(1, SIZE));
    let _ = driver.snapshot("s", &id).await;
    driver.killed().await.unwrap();

    // Opened by hand, where nobody goes on with the unsharing.
    let pools = opened(&bench);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(PoolMetrics::new(pools.clone())));
    let pool = &pools.served()[0].pool;
    let mut shown = String::new();
    text::encode(&mut shown, &registry).unwrap();
    let total = pool.account().unwrap().disk.total;
    for line in [
        format!("wharf_driver_pool_bytes{{pool=\"default\",kind=\"thin_promised\"}} {}", 2 * SIZE),
        format!("wharf_driver_pool_bytes{{pool=\"default\",kind=\"thin_limit\"}} {}", 10 * total),
        format!(
            "wharf_driver_pool_bytes{{pool=\"default\",kind=\"thin_floor\"}} {}",
            total / 100 * 5
        ),
        format!("wharf_driver_unsharing_bytes{{pool=\"default\"}} {SIZE}"),
    ] {
        assert!(shown.lines().any(|it| it == line), "{line}:\n{shown}");
    }
}

/// The pools of a bench whose driver does not run.
fn opened(bench: &Bench) -> Arc<Pools> {
    let config = PoolConfig::in_folder(bench.pool());
    let options = PoolsOptions::on_node(NODE, bench.path(""));
    let state_dir = StateDir::open(&bench.path("state"), "local.csi.wharf").unwrap();
    Pools::open(vec![config], state_dir, options).unwrap()
}
