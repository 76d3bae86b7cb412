//! Two drivers on a node: each serves its own pools, and leaves the other's volumes alone.

use std::process::Command;

use tonic::Code;
use wharf_mount::freeze;

use super::{configured::configure, made_on, orphans::is_mounted};
use crate::{
    bench::{Bench, NODE, PoolKind, WHARF, loops_below},
    client::{Usage, block, mounted, volume},
    codes::refused,
    running::Running,
};

/// A driver of another name, with a pool in `folder`.
async fn start_other(bench: &Bench, folder: &str) -> Running {
    let socket = bench.path("other.sock");
    let mut command = Command::new(WHARF);
    command.args(["driver", "--driver-name", "other.csi", "--node", NODE, "--endpoint"]);
    command.arg(format!("unix://{}", socket.display()));
    command.arg("--pool").arg(bench.path(folder)).arg("--state-dir").arg(bench.path("other"));
    command.arg("--cgroup-root").arg(bench.path("cgroup"));
    let logs = bench.path("logs");
    std::fs::create_dir_all(&logs).unwrap();
    Running::start(&command, &logs, &socket).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_takes_down_and_thaws_nothing_of_a_pool_that_another_driver_serves() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, one, two) = (bench.path("driver.yaml"), bench.path("one"), bench.path("two"));
    let bench = bench.config(&file);
    configure(&file, &[("default", one.clone(), ""), ("two", two.clone(), "")]);
    let driver = bench.start().await;
    // It attaches an image of the pool, and so has a note of that as well as of the pool.
    let old = made_on(&bench, &driver, "two", "old").await.unwrap();
    driver.bring_up(&old).await.unwrap();
    driver.stop().await;
    configure(&file, &[("default", one, "")]);

    let other = start_other(&bench, "two").await;
    let made = other.create(volume("file", super::SIZE, mounted(""))).await.unwrap();
    let file = Usage::new(&bench, "file", &made.volume_id, mounted(""));
    let made = other.create(volume("raw", super::SIZE, block())).await.unwrap();
    let raw = Usage::new(&bench, "raw", &made.volume_id, block());
    other.bring_up(&file).await.unwrap();
    other.bring_up(&raw).await.unwrap();
    let frozen = freeze::freeze(&file.staging).unwrap();
    let loops = loops_below(&two);
    assert_eq!(loops.len(), 3);

    let driver = bench.start().await;
    assert!(frozen.thaw().unwrap(), "the start thawed a volume of another driver");
    let unknown = format!("vol-{:08}-{:032}", 0, 1);
    for usage in [&file, &raw, &old] {
        let own = (usage.id == old.id).then_some(&usage.id);
        for id in [Some(&unknown), Some(&file.id), own].into_iter().flatten() {
            let usage = Usage { id: id.clone(), ..usage.clone() };
            refused("unpublish", driver.unpublish(&usage).await, Code::Internal);
            assert!(is_mounted(&usage.target), "{id} at {:?}", usage.target);
        }
    }
    let usage = Usage { id: unknown.clone(), ..file.clone() };
    refused("unstage", driver.unstage(&usage).await, Code::Internal);
    assert!(is_mounted(&file.staging));
    assert_eq!(loops_below(&two), loops);
    for usage in [&file, &raw, &old] {
        other.take_down(usage).await.unwrap();
        other.delete(&usage.id).await.unwrap();
    }
    other.stop().await;
    driver.stop().await;
    assert_eq!(loops_below(&two), []);
}
