//! State files that a crash, a full disk or a bad sector damaged: nothing is lost, and other pools
//! are served.

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tonic::Code;
use wharf_testkit::process::wait_for;

use crate::{
    bench::{Bench, MIB, PoolKind},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, map, mounted, text, volume},
    codes::refused,
    running::{PATIENCE, Running},
};

const SIZE: u64 = 16 * MIB;

/// Puts something in the place of a state file.
type Damage = fn(&Path);

/// What a kill leaves of a state file that is being made, here or by an older release.
const UNFINISHED: [(&str, Damage); 4] = [
    ("no file, and the start of a new one", |state| {
        fs::rename(state, state.with_extension("redb.kept")).unwrap();
        fs::write(state.with_extension("redb.new"), "redb").unwrap();
    }),
    ("an empty file", |state| drop(File::create(state).unwrap())),
    ("a file without records", |state| {
        fs::remove_file(state).unwrap();
        let ballast = state.with_file_name("ballast-of-the-test");
        drop(wharf_driver::store::Store::open(state, &ballast).unwrap());
        fs::remove_file(ballast).unwrap();
    }),
    ("no file", |state| fs::remove_file(state).unwrap()),
];

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_found_by_their_marks_when_a_state_file_was_not_finished() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let made = driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    let a = Usage::new(&bench, "a", &made.volume_id, mounted(""));
    let data = bytes(3, MIB);
    driver.bring_up(&a).await.unwrap();
    write(&a.file("data"), &data);
    driver.take_down(&a).await.unwrap();
    driver.stop().await;
    for (what, damage) in UNFINISHED {
        damage(&bench.images().join("state.redb"));
        let driver = bench.start().await;
        assert_eq!(driver.list().await.unwrap(), [&*a.id], "{what}");
        driver.bring_up(&a).await.unwrap();
        assert_eq!(checksum_of(&a.file("data"), MIB), checksum(&data), "{what}");
        driver.take_down(&a).await.unwrap();
        driver.stop().await;
    }
    let driver = bench.start().await;
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

/// Overwrites a file from here on, and leaves its length.
fn overwrite(file: &Path, from: u64, fill: impl Fn(u64) -> Vec<u8>) {
    let mut file = File::options().write(true).open(file).unwrap();
    let length = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(from)).unwrap();
    file.write_all(&fill(length - from)).unwrap();
}

const DAMAGED: [(&str, Damage); 3] = [
    ("noise after the header", |state| overwrite(state, 8192, |length| bytes(5, length))),
    ("zeroes after the first page", |state| {
        overwrite(state, 4096, |length| vec![0; usize::try_from(length).unwrap()]);
    }),
    ("noise", |state| overwrite(state, 0, |length| bytes(6, length))),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_state_file_keeps_no_other_pool_from_being_served() {
    let Some((bench, fast, b)) = with_volume_on_second_pool().await else { return };
    for (what, damage) in DAMAGED {
        damage(&fast.join("state.redb"));
        let driver = bench.start().await;
        let other = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
        driver.delete(&other).await.unwrap();
        let said = refused(what, driver.delete(&b).await, Code::Unavailable);
        assert!(said.contains("state.redb") && said.contains("pool rebuild"), "{what}: {said}");
        let mut rebuild = std::process::Command::new(crate::bench::WHARF);
        rebuild.args(["driver", "pool", "rebuild", "--pool"]).arg(&fast);
        let output = rebuild.output().unwrap();
        assert!(output.status.success(), "{what}: {output:?}");
        has(&driver, &b).await;
        driver.stop().await;
    }
}

/// A bench with the pools `default` and `fast`, the folder of `fast`, and the id of a volume on it.
/// The driver is stopped.
pub(crate) async fn with_volume_on_second_pool() -> Option<(Bench, PathBuf, String)> {
    let bench = Bench::new(PoolKind::Copy)?;
    let fast = bench.path("fast");
    let bench = bench.flag("--pool", format!("fast={}", text(&fast)));
    let driver = bench.start().await;
    let mut request = volume("b", SIZE, mounted(""));
    request.parameters = map(&[("pool", "fast")]);
    let id = driver.create(request).await.unwrap().volume_id;
    driver.stop().await;
    Some((bench, fast, id))
}

/// Waits until a volume is listed.
pub(crate) async fn has(driver: &Running, id: &str) {
    wait_for(PATIENCE, "the volume to be listed", async || {
        driver.list().await.unwrap().iter().any(|it| it == id).then_some(())
    })
    .await
    .unwrap();
}

/// Puts a link to a foreign file, or a pipe, in the place of a file.
fn put(kind: &str, foreign: &Path, file: &Path) {
    match kind {
        "link" => std::os::unix::fs::symlink(foreign, file).unwrap(),
        _ => mknodat(CWD, file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
    }
}

/// The same for the files of a pool: its pool is not served until they are back, and others are.
#[tokio::test(flavor = "multi_thread")]
async fn links_and_pipes_in_place_of_a_pool_s_files_are_neither_followed_nor_waited_for() {
    let Some((bench, fast, b)) = with_volume_on_second_pool().await else { return };
    let foreign = bench.path("foreign");
    fs::write(&foreign, "precious").unwrap();
    for name in ["pool.json", "state.redb"] {
        for kind in ["link", "pipe"] {
            let (file, kept) = (fast.join(name), bench.path("kept"));
            fs::rename(&file, &kept).unwrap();
            put(kind, &foreign, &file);
            let driver = bench.start().await;
            let other = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
            driver.delete(&other).await.unwrap();
            let what = format!("{kind} as {name}");
            let said = refused(&what, driver.delete(&b).await, Code::Unavailable);
            assert!(said.contains(name), "{what}: {said}");
            fs::rename(&kept, &file).unwrap();
            driver.stop().await;
            let driver = bench.start().await;
            has(&driver, &b).await;
            driver.stop().await;
        }
    }
    assert_eq!(fs::read(&foreign).unwrap(), b"precious");
}

/// Files that somebody put in the place of an image: what they lead to stays as it is, and no call
/// waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn links_and_pipes_in_place_of_an_image_are_neither_followed_nor_waited_for() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let foreign = bench.path("foreign");
    fs::write(&foreign, "precious").unwrap();
    for name in ["link", "pipe"] {
        let id = driver.create(volume(name, SIZE, mounted(""))).await.unwrap().volume_id;
        let image = bench.rows().into_iter().find(|row| row.id == id).unwrap().image;
        fs::remove_file(&image).unwrap();
        put(name, &foreign, &image);
        let usage = Usage::new(&bench, name, &id, mounted(""));
        driver.attach(&usage).await.unwrap();
        driver.stage(&usage).await.expect_err("not an image");
        driver.detach(&id).await.unwrap();
        driver.snapshot("s", &id).await.expect_err("not an image");
        assert_eq!(bench.rows().len(), 1, "{name}");
        driver.delete(&id).await.unwrap();
        assert!(fs::symlink_metadata(&image).is_err(), "{name} is left");
    }
    assert_eq!(fs::read(&foreign).unwrap(), b"precious");
    driver.stop().await;
    bench.assert_empty();
}
