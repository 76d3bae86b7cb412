//! All of csi-sanity, the SDK's conformance tests, and a search for secrets in the log.

use wharf_csi_sdk::laws::Subject;
use wharf_testkit::sanity::{Access, Sanity, Score};

use crate::{
    bench::{Bench, MIB, PoolKind},
    running::Running,
};

/// One case is switched off in the suite's source.
const FULL: Score = Score { passed: 102, failed: 0, skipped: 0, pending: 1, failures: Vec::new() };
/// Small, since the suite fills the node up to its limit of 128 volumes.
const SIZE: u64 = 16 * MIB;
const POOL: PoolKind = PoolKind::Reflink(4096);

async fn has_full_score(pool: PoolKind, access: Access, split: bool) {
    let Some(bench) = Bench::new(pool) else { return };
    bench_has_full_score(&bench, access, split, &[]).await;
}

/// With a second pool, which the suite's volumes are on or not.
async fn has_full_score_beside(access: Access, parameters: &[(&str, &str)]) {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let other = format!("other={}", bench.path("other").display());
    bench_has_full_score(&bench.flag("--pool", other), access, false, parameters).await;
}

async fn bench_has_full_score(
    bench: &Bench,
    access: Access,
    split: bool,
    parameters: &[(&str, &str)],
) {
    let controller = bench.path("controller.sock");
    let endpoint = format!("unix://{}", controller.display());
    let mut suite = Sanity::new(bench.socket());
    let mut flags = Vec::new();
    if split {
        flags.extend(["--controller-endpoint", endpoint.as_str()]);
        suite = suite.controller(&controller);
    }
    let driver = bench.start_with(&flags).await;
    let suite = suite.access(access).size(SIZE).attach_limit();
    let mut suite = suite.mutable_parameters(&[("wiops", "1000")]);
    if !parameters.is_empty() {
        suite = suite.parameters(parameters);
    }
    if let Some(score) = suite.run(&bench.path("")).await.unwrap() {
        assert_eq!(score, FULL, "{}", driver.tail());
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_on_image_copy_have_the_full_score() {
    has_full_score(PoolKind::Copy, Access::Mount, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_on_reflink_have_the_full_score() {
    has_full_score(POOL, Access::Mount, false).await;
}

/// Where copies get blocks of their own.
#[tokio::test(flavor = "multi_thread")]
async fn mounts_beside_thin_volumes_have_the_full_score() {
    let Some(bench) = Bench::new(POOL) else { return };
    bench_has_full_score(&bench.flag("--kinds", "thick,thin"), Access::Mount, false, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_on_split_sockets_have_the_full_score() {
    has_full_score(PoolKind::Copy, Access::Mount, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_on_image_copy_have_the_full_score() {
    has_full_score(PoolKind::Copy, Access::Block, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_on_reflink_have_the_full_score() {
    has_full_score(POOL, Access::Block, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_on_split_sockets_have_the_full_score() {
    has_full_score(POOL, Access::Block, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_on_the_default_of_two_pools_have_the_full_score() {
    has_full_score_beside(Access::Mount, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_on_the_other_of_two_pools_have_the_full_score() {
    has_full_score_beside(Access::Block, &[("pool", "other")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_laws_of_the_sdk_hold() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    subject(&driver).keeps_all_laws().await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_reaches_the_log_at_any_verbosity() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start_with(&["-v", "6"]).await;
    subject(&driver).plant_secrets().await.unwrap();
    let log = driver.log();
    for rpc in ["CreateVolume", "NodePublishVolume", "NodeStageVolume", "CreateSnapshot"] {
        assert!(log.contains(rpc), "{rpc} is not in the log:\n{log}");
    }
    Subject::check_log(&log).unwrap();
    driver.stop().await;
}

fn subject(driver: &Running) -> Subject {
    Subject::new(driver.channel(), i64::try_from(SIZE).unwrap())
}
