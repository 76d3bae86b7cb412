//! Volumes in use whose pool is not served any more.

use std::fs;
use std::path::Path;

use tonic::Code;
use wharf_mount::mountinfo;

use super::configured::configure;
use super::made_on;
use crate::bench::{Bench, PoolKind, loops_below};
use crate::client::{Usage, block, map, mounted, volume};
use crate::codes::refused;

const SIZE: u64 = super::SIZE;

fn is_mounted(path: &Path) -> bool {
    mountinfo::root_at(path).unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_pool_that_was_removed_are_taken_from_their_pods() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, one, two) = (bench.path("driver.yaml"), bench.path("one"), bench.path("two"));
    let bench = bench.config(&file);
    configure(&file, &[("default", one.clone(), ""), ("two", two.clone(), "")]);
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "two", "a").await.unwrap();
    let mut request = volume("raw", SIZE, block());
    request.parameters = map(&[("pool", "two")]);
    let raw = driver.create(request).await.unwrap().volume_id;
    let raw = Usage::new(&bench, "raw", &raw, block());
    let mut inline = Usage::new(&bench, "inline", "csi-inline", mounted(""));
    inline.staging = std::path::PathBuf::new();
    let ephemeral = (wharf_facts::context::EPHEMERAL, "true");
    let pod = bench.path("pods/pod");
    fs::create_dir(&pod).unwrap();
    inline.target = pod.join("inline");
    inline.context = map(&[ephemeral, ("size", "16Mi"), ("pool", "two")]);
    driver.bring_up(&a).await.unwrap();
    driver.bring_up(&raw).await.unwrap();
    driver.publish(&inline).await.unwrap();
    driver.kill().await;

    configure(&file, &[("default", one.clone(), "")]);
    let driver = bench.start().await;
    let forget = bench.driver_command("forget", &["two"]);
    let said = String::from_utf8_lossy(&forget.stderr).into_owned();
    assert!(!forget.status.success() && said.contains("is in use"), "{said}");
    driver.unpublish(&inline).await.unwrap();
    fs::remove_dir(&pod).unwrap();
    for usage in [&a, &raw] {
        driver.take_down(usage).await.unwrap();
        driver.take_down(usage).await.unwrap();
        assert!(!is_mounted(&usage.staging) && !usage.target.exists());
        refused("delete", driver.delete(&usage.id).await, Code::Unavailable);
    }
    driver.stop().await;
    assert_eq!(loops_below(&two), []);

    // The pool is back: its volumes are there, none is in use, and the inline one is gone with its pod.
    configure(&file, &[("default", one, ""), ("two", two.clone(), "")]);
    let driver = bench.start().await;
    for usage in [&a, &raw] {
        driver.bring_up(usage).await.unwrap();
        driver.take_down(usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
    assert_eq!(loops_below(&two), []);
    assert_eq!(fs::read_dir(two.join("volumes")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_volume_is_not_unmounted_for_an_unknown_one() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let unknown = Usage::new(&bench, "unknown", "vol-unknown", mounted(""));
    fs::create_dir(&unknown.target).unwrap();
    for path in [&unknown.target, &unknown.staging] {
        let mut mount = std::process::Command::new("mount");
        assert!(mount.args(["-t", "tmpfs", "foreign"]).arg(path).status().unwrap().success());
    }
    refused("unpublish", driver.unpublish(&unknown).await, Code::Internal);
    refused("unstage", driver.unstage(&unknown).await, Code::Internal);
    assert!(is_mounted(&unknown.target) && is_mounted(&unknown.staging));
    driver.stop().await;
}
