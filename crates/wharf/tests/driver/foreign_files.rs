//! Symlinks, hard links, named pipes and mounts that somebody left under the names of files and
//! folders that the driver makes.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tonic::Code;
use wharf_testkit::process::{Process, wait_for};

use crate::{
    bench::{Bench, MIB, PoolKind},
    client::{mounted, volume},
    codes::refused,
    pools::configure,
    running::PATIENCE,
    state_file::{has, with_volume_on_second_pool},
};

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
    let refusal = log.lines().find(|line| line.contains("failed to serve pool")).unwrap();
    assert!(refusal.contains("expected a regular file"), "{refusal}");
    configure(&file, &[("default", one, "")]);
    wait_for(PATIENCE, "the pool to be closed", async || {
        driver.log().contains("failed to unmount pool image").then_some(())
    })
    .await
    .unwrap();
    driver.stop().await;
}

/// A folder with a file in it that anybody may read.
fn foreign_folder(folder: &Path) {
    fs::create_dir(folder).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("file"), "precious").unwrap();
    fs::set_permissions(folder.join("file"), fs::Permissions::from_mode(0o644)).unwrap();
}

#[track_caller]
fn assert_folder_untouched(folder: &Path, what: &str) {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "{what}");
    assert_untouched(&folder.join("file"), what);
    assert_eq!((mode(folder), mode(&folder.join("file"))), (0o755, 0o644), "{what}");
}

/// Has a foreign folder shown in the place of one of the driver's.
fn show(kind: &str, foreign: &Path, place: &Path) {
    match kind {
        "symlink" => std::os::unix::fs::symlink(foreign, place).unwrap(),
        _ => {
            fs::create_dir(place).unwrap();
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", "mode=0755", "tmpfs"]).arg(place);
            assert!(mount.status().unwrap().success());
            foreign_folder(&place.join("theirs"));
        }
    }
}

/// A folder of a pool that is somebody else's: its pool is not served until it is back, and others
/// are.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_folder_in_place_of_a_pool_s_is_neither_emptied_nor_given_another_mode() {
    let Some((bench, fast, b)) = with_volume_on_second_pool().await else { return };
    let foreign = bench.path("foreign");
    foreign_folder(&foreign);
    let folders = ["volumes", "snapshots", "partial", "quarantine", "ephemeral", "undo", "reserve"];
    let links = folders.map(|name| (name, "symlink"));
    for (name, kind) in links.into_iter().chain([("partial", "mount")]) {
        let (folder, kept) = (fast.join(name), bench.path("kept"));
        fs::rename(&folder, &kept).unwrap();
        show(kind, &foreign, &folder);
        let driver = bench.start().await;
        let what = format!("{kind} as {name}");
        let other = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
        driver.delete(&other).await.unwrap();
        let said = refused(&what, driver.delete(&b).await, Code::Unavailable);
        assert!(
            said.contains(name) && said.contains("folder of the driver's own"),
            "{what}: {said}"
        );
        driver.stop().await;
        if kind == "symlink" {
            assert_folder_untouched(&foreign, &what);
            fs::remove_file(&folder).unwrap();
        } else {
            assert_folder_untouched(&folder.join("theirs"), &what);
            wharf_mount::mount::unmount(&folder).unwrap();
            fs::remove_dir(&folder).unwrap();
        }
        fs::rename(&kept, &folder).unwrap();
    }
    let driver = bench.start().await;
    has(&driver, &b).await;
    driver.delete(&b).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_symlink_in_place_of_a_folder_of_the_state_ends_the_start_with_its_name() {
    for name in ["local.csi.wharf", "local.csi.wharf/pools", "local.csi.wharf/attached"] {
        let Some(bench) = Bench::new(PoolKind::Copy) else { return };
        let (foreign, place) = (bench.path("foreign"), bench.path("state").join(name));
        foreign_folder(&foreign);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        show("symlink", &foreign, &place);
        let mut driver = Process::start("driver", &bench.command(&[]), &bench.path("")).unwrap();
        let status = driver.wait(PATIENCE).await.unwrap();
        let log = fs::read_to_string(driver.log()).unwrap();
        assert!(!status.success() && log.contains(name), "{name}: {log}");
        assert_folder_untouched(&foreign, name);
    }
}
