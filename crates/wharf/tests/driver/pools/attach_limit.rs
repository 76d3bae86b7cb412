//! The limit of attached volumes, which includes volumes of pools that are not served.

use std::fs;

use tonic::Code;
use wharf_mount::{loopdev, mount};

use super::{is_served, made_on, two_pools};
use crate::{
    bench::{PoolKind, loops_below},
    codes::refused,
};

#[tokio::test(flavor = "multi_thread")]
async fn staged_volumes_of_a_missing_pool_count_for_the_attach_limit() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let bench = bench.flag("--attach-limit", "1");
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    let b = made_on(&bench, &driver, "fast", "b").await.unwrap();
    driver.bring_up(&b).await.unwrap();
    driver.stop().await;
    fs::rename(bench.path("fast"), bench.path("away")).unwrap();

    let driver = bench.start().await;
    let said = refused("a second volume", driver.attach(&a).await, Code::ResourceExhausted);
    assert!(said.contains("--attach-limit"), "{said}");
    driver.unpublish(&b).await.unwrap();
    driver.unstage(&b).await.unwrap();
    driver.attach(&a).await.unwrap();
    driver.detach(&a.id).await.unwrap();

    fs::rename(bench.path("away"), bench.path("fast")).unwrap();
    is_served(&driver).await;
    driver.detach(&b.id).await.unwrap();
    driver.delete(&b.id).await.unwrap();
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

/// The note of its image outlives the device.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_a_missing_pool_that_was_detached_by_hand_does_not_count() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let bench = bench.flag("--attach-limit", "1");
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    let b = made_on(&bench, &driver, "fast", "b").await.unwrap();
    driver.bring_up(&b).await.unwrap();
    driver.stop().await;
    fs::rename(bench.path("fast"), bench.path("away")).unwrap();
    let driver = bench.start().await;
    refused("a second volume", driver.attach(&a).await, Code::ResourceExhausted);
    for path in [&b.target, &b.staging] {
        mount::unmount(path).unwrap();
    }
    for (device, _) in loops_below(&bench.path("away")) {
        loopdev::detach(&device).unwrap();
    }
    driver.attach(&a).await.unwrap();
    driver.stop().await;
}
