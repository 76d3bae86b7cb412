//! A format that is killed is repeated, and never overwrites data that was written meanwhile.

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, block, mounted, volume},
    offline::cutting,
    stand_in::start_with_path,
};

const SIZE: u64 = 320 * MIB;
const DATA: u64 = MIB;

/// Stages a new volume with mkfs killed after a while, and the driver with it; true if the kill
/// came in time.
async fn is_cut(bench: &Bench, filesystem: &str, seconds: &str) -> bool {
    let program = format!("mkfs.{filesystem}");
    let case = format!("{program} killed after {seconds} s");
    let mut driver = start_with_path(bench, &cutting(bench, &program, seconds)).await;
    let id = driver.create(volume("a", SIZE, mounted(filesystem))).await.unwrap().volume_id;
    let usage = Usage::new(bench, "a", &id, mounted(filesystem));
    let cut = driver.stage(&usage).await.is_err();
    if cut {
        driver.killed().await.unwrap_or_else(|error| panic!("{case}: {error}"));
        driver = bench.start().await;
    }
    driver.bring_up(&usage).await.unwrap_or_else(|status| panic!("{case}: {status}"));
    write(&usage.file("data"), &bytes(1, DATA));
    driver.take_down(&usage).await.unwrap();
    driver.bring_up(&usage).await.unwrap_or_else(|status| panic!("{case}: {status}"));
    assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(1, DATA)), "{case}");
    driver.take_down(&usage).await.unwrap();
    driver.delete(&id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
    cut
}

async fn survives_cuts(filesystem: &str) {
    if needs(&[&format!("mkfs.{filesystem}")]).is_none() {
        return;
    }
    for pool in [PoolKind::Copy, PoolKind::Reflink(1024)] {
        let Some(bench) = Bench::new(pool) else { return };
        // The pool may be in an image, which is formatted at the first start.
        bench.start().await.stop().await;
        let mut cuts = 0;
        for seconds in ["0.001", "0.003", "0.006", "0.012", "0.025"] {
            cuts += u32::from(is_cut(&bench, filesystem, seconds).await);
        }
        assert!(cuts > 0, "{pool:?}: mkfs.{filesystem} was always faster");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_format_with_ext4_that_is_killed_is_begun_again() {
    survives_cuts("ext4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_format_with_xfs_that_is_killed_is_begun_again() {
    survives_cuts("xfs").await;
}

/// Somebody who uses the volume as a device after a format was cut short finds it empty, and keeps
/// what is written.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_after_a_killed_format_is_empty_and_stays_what_its_user_makes_of_it() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let mut driver = start_with_path(&bench, &cutting(&bench, "mkfs.ext4", "0.003")).await;
    let id = driver.create(volume("a", SIZE, mounted("ext4"))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted("ext4"));
    if driver.stage(&usage).await.is_ok() {
        // It was faster than the kill.
        driver.stop().await;
        return;
    }
    driver.killed().await.unwrap();
    let driver = bench.start().await;
    let raw = Usage::new(&bench, "raw", &id, block());
    driver.bring_up(&raw).await.unwrap();
    assert_eq!(checksum_of(&raw.target, 64 << 10), checksum(&[0; 64 << 10]));
    write(&raw.target, &bytes(2, DATA));
    driver.take_down(&raw).await.unwrap();
    driver.stage(&usage).await.expect_err("data is never formatted over");
    driver.bring_up(&raw).await.unwrap();
    assert_eq!(checksum_of(&raw.target, DATA), checksum(&bytes(2, DATA)));
    driver.take_down(&raw).await.unwrap();
    driver.stop().await;
}
