//! Symlinks, hard links and named pipes that somebody left under the names of files that the driver makes.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use wharf_testkit::process::{Process, wait_for};

use crate::bench::{Bench, MIB, PoolKind};
use crate::client::{mounted, volume};
use crate::pools::configure;
use crate::running::PATIENCE;

const SIZE: u64 = 16 * MIB;
const KINDS: [&str; 3] = ["symlink", "hard link", "pipe"];

/// Puts a symlink or hard link to a foreign file, or a pipe, where the driver keeps a file.
fn put(kind: &str, foreign: &Path, file: &Path) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    match kind {
        "symlink" => std::os::unix::fs::symlink(foreign, file).unwrap(),
        "hard link" => fs::hard_link(foreign, file).unwrap(),
        _ => mknodat(CWD, file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
    }
}

fn foreign_file(bench: &Bench) -> PathBuf {
    let foreign = bench.path("foreign");
    fs::write(&foreign, "precious").unwrap();
    foreign
}

#[track_caller]
fn assert_untouched(foreign: &Path, what: &str) {
    assert_eq!(fs::metadata(foreign).unwrap().len(), 8, "{what}: the foreign file was resized");
    assert_eq!(fs::read(foreign).unwrap(), b"precious", "{what}");
}

/// The driver removes what has the name of a file that it creates, and starts.
async fn is_replaced(pool: PoolKind, name: &str) {
    for kind in KINDS {
        let Some(bench) = Bench::new(pool) else { return };
        let foreign = foreign_file(&bench);
        put(kind, &foreign, &bench.path(name));
        let driver = bench.start().await;
        let what = format!("{kind} as {name}");
        assert_untouched(&foreign, &what);
        let made = driver.create(volume("a", SIZE, mounted(""))).await;
        let id = made.unwrap_or_else(|status| panic!("{what}: {status}")).volume_id;
        driver.delete(&id).await.unwrap();
        driver.stop().await;
        assert_untouched(&foreign, &what);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_file_is_not_overwritten_by_a_new_pool_image() {
    is_replaced(PoolKind::Reflink(320), "pool/.pool.img.partial").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_file_is_not_overwritten_by_the_identity_of_a_pool() {
    is_replaced(PoolKind::Copy, "pool/pool.json.new").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_file_is_not_overwritten_by_the_note_of_a_pool() {
    is_replaced(PoolKind::Copy, "state/local.csi.wharf/pools/default.json.new").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_file_does_not_grow_to_the_size_of_the_ballast() {
    is_replaced(PoolKind::Copy, "pool/ballast").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_file_is_not_overwritten_by_a_new_state_file() {
    is_replaced(PoolKind::Copy, "pool/state.redb.new").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_not_a_file_of_the_driver_ends_the_start_with_its_name() {
    for kind in KINDS {
        let Some(bench) = Bench::new(PoolKind::Copy) else { return };
        let foreign = foreign_file(&bench);
        put(kind, &foreign, &bench.path("state/local.csi.wharf/lock"));
        let mut driver = Process::start("driver", &bench.command(&[]), &bench.path("")).unwrap();
        let status = driver.wait(PATIENCE).await.unwrap();
        let log = fs::read_to_string(driver.log()).unwrap();
        assert!(!status.success() && log.contains("local.csi.wharf/lock"), "{kind}: {log}");
        assert_untouched(&foreign, kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_in_place_of_a_pool_image_is_neither_opened_nor_waited_for() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, one, two) = (bench.path("driver.yaml"), bench.path("one"), bench.path("two"));
    let bench = bench.config(&file);
    put("pipe", &bench.path("foreign"), &two.join("pool.img"));
    configure(&file, &[("default", one.clone(), ""), ("two", two, "")]);
    let driver = bench.start().await;
    let log = driver.log();
    let refusal = log.lines().find(|line| line.contains("pool is not served")).unwrap();
    assert!(refusal.contains("expected a regular file"), "{refusal}");
    configure(&file, &[("default", one, "")]);
    wait_for(PATIENCE, "the pool to be closed", async || {
        driver.log().contains("failed to unmount the image of a closed pool").then_some(())
    })
    .await
    .unwrap();
    driver.stop().await;
}
