//! A pool whose disk hangs or is covered by another mount, next to a pool that works.

use std::{process::Command, sync::Arc};

use tokio::task::JoinSet;
use tonic::Code;
use wharf_mount::{freeze, mount};
use wharf_testkit::process::wait_for;

use super::{SIZE, configure, fill, get, made_on, on_pool, readyz, two_pools};
use crate::{
    bench::{Bench, MIB, PoolKind},
    client::{Client, Usage, block, mounted, volume},
    codes::refused,
    full::{mount_pool, mount_pool_of},
    running::PATIENCE,
};

/// More than work on one pool at the same time.
const CALLS: usize = 80;

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_keeps_no_other_pool_waiting() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let bench = bench.flag("--http-endpoint", "127.0.0.1:0");
    mount_pool(&bench);
    let driver = bench.start().await;
    let before = driver.create(volume("before", SIZE, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "before", &before, mounted(""));
    let frozen = freeze::freeze(&bench.pool()).unwrap();
    let mut hanging = JoinSet::new();
    let (client, mut attaching) = (Client::new(&bench.socket()), JoinSet::new());
    attaching.spawn(async move { client.attach(&usage).await });
    for number in 0..CALLS {
        let client = Client::new(&bench.socket());
        let request = volume(&format!("hangs-{number}"), MIB, block());
        hanging.spawn(async move { client.create(request).await });
    }
    let others = async {
        let other = made_on(&bench, &driver, "fast", "other").await.unwrap();
        fill(&driver, &other).await;
        let health = driver.storage_health().await.unwrap();
        assert_eq!(health, ["StorageUnreachable PoolHangs"]);
        let (code, said) = readyz(&driver);
        assert_eq!(code, 503);
        assert!(said.contains("pool default: its disk gave no answer"), "{said}");
        let (_, figures) = get(&driver, "/metrics");
        assert!(figures.contains(r#"wharf_driver_pool_bytes{pool="fast""#), "{figures}");
        let listed = driver.list().await.unwrap();
        assert!(listed.contains(&before) && listed.contains(&other.id), "{listed:?}");
        frozen.thaw().unwrap();
    };
    others.await;
    for made in hanging.join_all().await {
        driver.delete(&made.unwrap().volume_id).await.unwrap();
    }
    assert!(attaching.join_all().await.iter().all(Result::is_ok));
    driver.stop().await;
}

/// Threads that wait for disks that hang are not given back.
#[tokio::test(flavor = "multi_thread")]
async fn many_pools_that_hang_leave_threads_for_one_that_works() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool_of(&bench, 1024 * MIB);
    let file = bench.path("driver.yaml");
    let names: Vec<_> = (0..9).map(|number| format!("p{number}")).collect();
    let mut pools = vec![("default", bench.path("works"), "")];
    pools.extend(names.iter().map(|name| (name.as_str(), bench.pool().join(name), "")));
    configure(&file, &pools);
    let bench = bench.config(&file);
    let driver = bench.start().await;
    let frozen = freeze::freeze(&bench.pool()).unwrap();
    let mut hanging = JoinSet::new();
    for name in &names {
        let client = Arc::new(Client::new(&bench.socket()));
        for number in 0..CALLS {
            let request = volume(&format!("{name}-{number}"), MIB, block());
            let (client, request) = (client.clone(), on_pool(name, request));
            hanging.spawn(async move { client.create(request).await });
        }
    }
    // Each pool's calls are at its disk by then.
    wait_for(PATIENCE, "threads that hang", async || (driver.threads() > 9 * 60).then_some(()))
        .await
        .unwrap();
    let other = made_on(&bench, &driver, "default", "other").await.unwrap();
    fill(&driver, &other).await;
    frozen.thaw().unwrap();
    for made in hanging.join_all().await {
        made.unwrap();
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_disk_was_taken_away_is_reported_and_its_volumes_stay_listed() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let gone = driver.create(volume("gone", SIZE, mounted(""))).await.unwrap().volume_id;
    let other = made_on(&bench, &driver, "fast", "other").await.unwrap();
    let status = Command::new("umount").arg("--lazy").arg(bench.pool()).status().unwrap();
    assert!(status.success());
    let mut ids = vec![gone.clone(), other.id.clone()];
    ids.sort();
    assert_eq!(driver.list().await.unwrap(), ids);
    assert_eq!(driver.storage_health().await.unwrap(), ["StorageUnreachable PoolMissing"]);
    refused("health", driver.health(&gone).await.map(drop), Code::Unavailable);
    assert_eq!(driver.capacity().await.unwrap(), 0);
    let shown = bench.driver_command("usage", &[]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("pool default is not served"), "{shown}");
    fill(&driver, &other).await;
    driver.stop().await;
    // The disk may be mounted at its place again.
    mount_pool(&bench);
    let driver = bench.start().await;
    driver.delete(&gone).await.unwrap();
    driver.stop().await;
    mount::unmount(&bench.pool()).unwrap();
}
