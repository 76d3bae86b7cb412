//! Folders below a hung mount: every access to a path there blocks, as on a network disk whose
//! server is down.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, mount};
use tonic::Code;
use wharf_mount::mount::lazy_unmount;
use wharf_testkit::{process::wait_for, skip};

use super::{
    configured::{becomes, configure},
    fill, made_on,
};
use crate::{
    bench::{Bench, PoolKind},
    client::text,
    running::PATIENCE,
};

const INIT: u32 = 26;

/// A FUSE filesystem that answers the kernel's greeting and nothing else. Drop it before the bench.
struct HungMount {
    point: PathBuf,
    /// Requests that wait for an answer fail when this is closed.
    _device: File,
}

impl HungMount {
    fn begin(point: &Path) -> Option<Self> {
        let Ok(mut device) = File::options().read(true).write(true).open("/dev/fuse") else {
            skip::record(None, "needs /dev/fuse");
            return None;
        };
        fs::create_dir_all(point).unwrap();
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other");
        let options = std::ffi::CString::new(options).unwrap();
        mount("hang", point, "fuse", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        let mut request = vec![0; 1 << 20];
        let length = device.read(&mut request).unwrap();
        assert!(length >= 16 && request[4..8] == INIT.to_le_bytes(), "the greeting comes first");
        // `struct fuse_out_header`, then `struct fuse_init_out`: version 7.31, and what may be read
        // and written at a time.
        let mut answer = Vec::from(80_u32.to_le_bytes());
        answer.extend([0; 4]);
        answer.extend(&request[8..16]);
        answer.extend([7_u32, 31, 65536, 0, 0, 65536, 1].iter().flat_map(|it| it.to_le_bytes()));
        answer.resize(80, 0);
        device.write_all(&answer).unwrap();
        Some(Self { point: point.to_owned(), _device: device })
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        let _ = lazy_unmount(&self.point);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_below_a_mount_that_hangs_keeps_no_driver_from_starting() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let slow = bench.path("hung/pool");
    let bench = bench.flag("--pool", format!("slow={}", text(&slow)));
    let Some(hung) = HungMount::begin(&bench.path("hung")) else { return };
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    fill(&driver, &a).await;
    let said = made_on(&bench, &driver, "slow", "b").await.map(|it| it.id).unwrap_err();
    assert!(said.code() == Code::Unavailable && said.message().contains("no answer"), "{said}");
    driver.delete(&a.id).await.unwrap();
    drop(hung);
    // The mount is gone, and the folder below it is an ordinary one.
    becomes(&bench, &driver, "slow", Code::Ok).await;
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_below_a_mount_that_hangs_stops_no_change_of_other_pools() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, one, three) = (bench.path("driver.yaml"), bench.path("one"), bench.path("three"));
    let bench = bench.config(&file);
    let (default, slow) = (("default", one, ""), ("slow", bench.path("hung/pool"), ""));
    configure(&file, std::slice::from_ref(&default));
    // The driver looks at what appears in the folder of its configuration.
    fs::create_dir(bench.path("hung")).unwrap();
    let driver = bench.start().await;
    let Some(_hung) = HungMount::begin(&bench.path("hung")) else { return };
    configure(&file, &[default.clone(), slow.clone()]);
    becomes(&bench, &driver, "slow", Code::Unavailable).await;
    let drained = bench.driver_command("drain", &["default"]);
    assert!(drained.status.success(), "{drained:?}");
    let opened = bench.driver_command("drain", &["default", "--off"]);
    assert!(opened.status.success(), "{opened:?}");
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    fill(&driver, &a).await;
    configure(&file, &[default.clone(), slow, ("three", three, "")]);
    becomes(&bench, &driver, "three", Code::Ok).await;
    configure(&file, &[default]);
    becomes(&bench, &driver, "slow", Code::InvalidArgument).await;
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_mount_hangs_is_forgotten_and_stops_no_change_of_other_pools() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, one, two) = (bench.path("driver.yaml"), bench.path("one"), bench.path("two"));
    let bench = bench.config(&file);
    let default = ("default", one, "");
    configure(&file, &[default.clone(), ("slow", bench.path("hung/pool"), "")]);
    let driver = bench.start().await;
    let b = made_on(&bench, &driver, "slow", "b").await.unwrap();
    driver.stop().await;
    let Some(_hung) = HungMount::begin(&bench.path("hung")) else { return };
    configure(&file, std::slice::from_ref(&default));
    let driver = bench.start().await;
    let forgotten = bench.driver_command("forget", &["slow"]);
    assert!(forgotten.status.success(), "{forgotten:?}");
    driver.delete(&b.id).await.unwrap();
    configure(&file, &[default, ("two", two, "")]);
    becomes(&bench, &driver, "two", Code::Ok).await;
    driver.stop().await;
}

/// Only the thread that opens a pool resolves its folder, so it is that thread that finds two names
/// of one folder.
#[tokio::test(flavor = "multi_thread")]
async fn a_symlink_to_the_folder_or_into_the_images_of_another_pool_is_not_served() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, one) = (bench.path("driver.yaml"), bench.path("one"));
    let bench = bench.config(&file);
    let default = ("default", one.clone(), "");
    configure(&file, std::slice::from_ref(&default));
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    let (same, inside) = (bench.path("same"), bench.path("inside"));
    std::os::unix::fs::symlink(&one, &same).unwrap();
    std::os::unix::fs::symlink(one.join("volumes"), &inside).unwrap();
    let others = [("same", same, ""), ("inside", inside.join("pool"), "")];
    configure(&file, &[std::slice::from_ref(&default), &others[..]].concat());
    for (name, expected) in [("same", "is another pool's, too"), ("inside", "is inside of pool")] {
        wait_for(PATIENCE, expected, async || {
            let said = made_on(&bench, &driver, name, "b").await.map(|it| it.id).err()?;
            said.message().contains(expected).then_some(())
        })
        .await
        .unwrap();
    }
    assert_eq!(one.join("volumes").read_dir().unwrap().count(), 1, "a folder is among the images");
    fill(&driver, &a).await;
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
}
