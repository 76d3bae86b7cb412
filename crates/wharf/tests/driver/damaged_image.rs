//! Unreadable or replaced images: they harm neither other volumes nor foreign files.

use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use tonic::Code;
use wharf_mount::loopdev::{self, Loop, LoopOptions};

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    client::{Usage, mounted, volume},
    codes::refused,
    full::mount_pool,
    running::Running,
};

const SIZE: u64 = 16 * MIB;

/// A volume, and its image.
async fn made(bench: &Bench, driver: &Running, name: &str) -> (Usage, PathBuf) {
    let before = bench.files();
    let made = driver.create(volume(name, SIZE, mounted(""))).await.unwrap();
    let mut new = bench.files().into_iter().filter(|image| !before.contains(image));
    (Usage::new(bench, name, &made.volume_id, mounted("")), new.next().unwrap())
}

async fn lives(driver: &Running, usage: &Usage) {
    let up = driver.bring_up(usage).await;
    up.unwrap_or_else(|status| panic!("{status}: {}", driver.tail()));
    driver.take_down(usage).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_symlink_in_place_of_an_image_takes_no_device_of_others() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let (a, image) = made(&bench, &driver, "a").await;
    let (b, other) = made(&bench, &driver, "b").await;
    let (c, _) = made(&bench, &driver, "c").await;
    let foreign = bench.path("foreign.img");
    File::create(&foreign).unwrap().set_len(SIZE).unwrap();
    let file = File::options().read(true).write(true).open(&foreign).unwrap();
    let options = LoopOptions { block_size: Some(4096), ..LoopOptions::default() };
    let device = loopdev::attach(&file, &options).unwrap().into_loop();
    let is_attached = |device: &Loop| {
        let found = loopdev::find(device.device, device.inode).unwrap();
        found.iter().any(|it| it.number == device.number)
    };
    fs::remove_file(&image).unwrap();
    symlink(&foreign, &image).unwrap();
    // Looking at it never ends.
    fs::remove_file(&other).unwrap();
    symlink(&other, &other).unwrap();
    driver.attach(&a).await.unwrap();
    let said = refused("stage", driver.stage(&a).await, Code::Internal);
    assert!(said.contains("expected a regular file"), "{said}");
    assert!(is_attached(&device), "a stage detached a device of somebody else");
    driver.detach(&a.id).await.unwrap();
    driver.kill().await;
    let driver = bench.start().await;
    assert_eq!(driver.list().await.unwrap().len(), 3, "{}", driver.tail());
    lives(&driver, &c).await;
    for usage in [&a, &b, &c] {
        driver.delete(&usage.id).await.unwrap();
    }
    assert!(is_attached(&device), "a deletion detached a device of somebody else");
    loopdev::detach(&device).unwrap();
    driver.stop().await;
    bench.assert_empty();
}

/// Has the pool's ext4 refuse an inode, as after a bad sector.
fn damage_inode(bench: &Bench, inode: u64) {
    let mut debugfs = Command::new("debugfs");
    debugfs.args(["-w", "-R", &format!("set_inode_field <{inode}> mode 0170000")]);
    assert!(debugfs.arg(bench.path("disk.img")).status().unwrap().success());
}

fn is_unreadable(image: &Path) -> bool {
    fs::symlink_metadata(image).is_err_and(|error| error.raw_os_error() == Some(117))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_with_a_damaged_inode_keeps_no_other_from_being_served() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let Some(()) = needs(&["debugfs"]) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let (a, image) = made(&bench, &driver, "a").await;
    let (b, _) = made(&bench, &driver, "b").await;
    lives(&driver, &b).await;
    driver.stop().await;
    let inode = fs::metadata(&image).unwrap().ino();
    bench.reboot();
    damage_inode(&bench, inode);
    mount_pool(&bench);
    assert!(is_unreadable(&image));

    let driver = bench.start().await;
    assert_eq!(driver.list().await.unwrap().len(), 2, "{}", driver.tail());
    lives(&driver, &b).await;
    driver.attach(&a).await.unwrap();
    let said = refused("stage", driver.stage(&a).await, Code::Internal);
    assert!(said.contains("needs cleaning"), "{said}");
    driver.detach(&a.id).await.unwrap();
    // What the image says of itself cannot be read: it stays where it is until it can.
    driver.kill().await;
    fs::remove_file(bench.pool().join("state.redb")).unwrap();
    let driver = bench.start().await;
    assert_eq!(driver.list().await.unwrap(), [&*b.id], "{}", driver.tail());
    assert!(driver.log().contains("failed to read mark of image"), "{}", driver.log());
    lives(&driver, &b).await;
    driver.delete(&b.id).await.unwrap();
    driver.stop().await;
    assert_eq!(bench.files(), [image]);
}
