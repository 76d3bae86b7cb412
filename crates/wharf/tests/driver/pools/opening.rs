//! Pools that take long to open: their disk hangs, or others hold their volumes.

use std::path::Path;

use tokio::{sync::oneshot, task::JoinSet};
use tonic::Code;
use wharf_mount::{freeze, mount};
use wharf_testkit::process::wait_for;

use super::{
    configured::{becomes, configure},
    fill, is_served, made_on,
    orphans::is_mounted,
    readyz, two_pools,
};
use crate::{
    bench::{Bench, PoolKind, loops_below},
    codes::refused,
    devices::Stranger,
    full::mount_pool,
    running::PATIENCE,
};

/// A filesystem that stands still, no longer than a test waits: a driver that hangs there could not
/// be killed.
struct Hung {
    thaw: oneshot::Sender<()>,
    thawing: JoinSet<()>,
}

impl Hung {
    fn begin(mount_point: &Path) -> Self {
        let frozen = freeze::freeze(mount_point).unwrap();
        let (thaw, wanted) = oneshot::channel();
        let mut thawing = JoinSet::new();
        thawing.spawn(async move {
            let _ = tokio::time::timeout(4 * PATIENCE, wanted).await;
            assert!(frozen.thaw().unwrap(), "somebody else thawed it");
        });
        Self { thaw, thawing }
    }

    async fn end(self) {
        self.thaw.send(()).unwrap();
        self.thawing.join_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_at_a_start_keeps_no_other_pool_from_being_served() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let bench = bench.flag("--http-endpoint", "127.0.0.1:0");
    mount_pool(&bench);
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    let b = made_on(&bench, &driver, "fast", "b").await.unwrap();
    driver.stop().await;
    let hung = Hung::begin(&bench.pool());

    let driver = bench.start().await;
    fill(&driver, &b).await;
    let text = refused("of the pool that hangs", driver.delete(&a.id).await, Code::Unavailable);
    assert!(text.contains("gave no answer"), "{text}");
    // Whether it is published is in the pool's records, which nobody can read now.
    refused("unpublish", driver.unpublish(&a).await, Code::Unavailable);
    let (code, said) = readyz(&driver);
    let disk = format!("its disk at {} gave no answer", bench.pool().display());
    assert!(code == 503 && said.contains(&disk), "{code} {said}");
    hung.end().await;
    is_served(&driver).await;
    fill(&driver, &a).await;
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_pool_may_hang_at_a_start() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let hung = Hung::begin(&bench.pool());
    let driver = bench.start().await;
    refused("create", made_on(&bench, &driver, "default", "a").await, Code::Unavailable);
    hung.end().await;
    is_served(&driver).await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_disk_hangs_stops_neither_changes_of_others_nor_the_end_of_the_driver() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let (file, one, three) = (bench.path("driver.yaml"), bench.path("one"), bench.path("three"));
    let bench = bench.config(&file);
    let default = ("default", one, "");
    configure(&file, std::slice::from_ref(&default));
    let driver = bench.start().await;
    let hung = Hung::begin(&bench.pool());
    let slow = ("hung", bench.pool(), "");
    configure(&file, &[default.clone(), slow.clone()]);
    becomes(&bench, &driver, "hung", Code::Unavailable).await;

    let drained = bench.driver_command("drain", &["default"]);
    assert!(drained.status.success(), "{drained:?}");
    let opened = bench.driver_command("drain", &["default", "--off"]);
    assert!(opened.status.success(), "{opened:?}");
    let adopted = bench.driver_command("adopt", &["hung"]);
    let said = String::from_utf8_lossy(&adopted.stderr).into_owned();
    assert!(!adopted.status.success() && said.contains("gave no answer"), "{said}");
    configure(&file, &[default.clone(), slow.clone(), ("three", three.clone(), "")]);
    becomes(&bench, &driver, "three", Code::Ok).await;
    // Nobody waits for a pool that is no longer wanted, and it may come back.
    configure(&file, &[default.clone(), ("three", three.clone(), "")]);
    becomes(&bench, &driver, "hung", Code::InvalidArgument).await;
    configure(&file, &[default.clone(), slow, ("three", three, "")]);
    becomes(&bench, &driver, "hung", Code::Unavailable).await;

    // The kernel keeps the process until its last thread leaves the frozen filesystem. Nobody has
    // to wait for that.
    driver.terminate();
    let next = wait_for(PATIENCE, "a driver in its place", async || {
        let (command, folder) = (bench.command(&[]), bench.path("next"));
        std::fs::create_dir_all(&folder).unwrap();
        crate::running::Running::start(&command, &folder, &bench.socket()).await.ok()
    });
    let next = next.await.unwrap();
    becomes(&bench, &next, "three", Code::Ok).await;
    hung.end().await;
    becomes(&bench, &next, "hung", Code::Ok).await;
    driver.stop().await;
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unpublish_while_its_pool_is_being_opened_leaves_no_false_record() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let (file, one) = (bench.path("driver.yaml"), bench.path("one"));
    let bench = bench.config(&file);
    configure(&file, &[("default", one, ""), ("two", bench.pool(), "")]);
    let driver = bench.start_with(&["--fault", "kill:UnstagePromised"]).await;
    let a = made_on(&bench, &driver, "two", "a").await.unwrap();
    driver.bring_up(&a).await.unwrap();
    let held = made_on(&bench, &driver, "two", "held").await.unwrap();
    driver.stage(&held).await.unwrap();
    let stranger = Stranger::start(&bench).await;
    let mut driver = driver;
    driver.unstage(&held).await.unwrap_err();
    driver.killed().await.unwrap();
    let (disk, _) = loops_below(&bench.path("disk.img")).remove(0);
    mount::lazy_unmount(&bench.pool()).unwrap();

    let driver = bench.start().await;
    refused("two is missing", driver.delete(&a.id).await, Code::Unavailable);
    let mut mount = std::process::Command::new("mount");
    assert!(mount.arg(&disk.path).arg(bench.pool()).status().unwrap().success());
    // The pool is opened now, which takes 5 s: a stranger holds the volume whose unstage was cut
    // short.
    wait_for(PATIENCE, "the end of the unstage", async || {
        (!is_mounted(&held.staging)).then_some(())
    })
    .await
    .unwrap();
    wait_for(PATIENCE, "the unpublish", async || driver.unpublish(&a).await.ok()).await.unwrap();
    assert!(!is_mounted(&a.target));
    is_served(&driver).await;
    driver.unstage(&a).await.unwrap();
    stranger.end().await;
    for usage in [&a, &held] {
        driver.unstage(usage).await.unwrap();
        driver.detach(&usage.id).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
}
