//! A foreign loop device on a hung mount: asking the kernel for its file blocks.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    mount::{MountFlags, mount},
};
use wharf_mount::{
    loopdev::{self, Loop, LoopOptions},
    mount::lazy_unmount,
};
use wharf_testkit::skip;

use super::{fill, made_on};
use crate::bench::{Bench, MIB, PoolKind};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const NOSYS: i32 = -38;

/// A FUSE filesystem with one file, `file`. Drop it before the bench.
struct SmallMount {
    point: PathBuf,
    /// Requests that wait for an answer fail when this is closed.
    device: Option<File>,
    is_silent: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl SmallMount {
    fn begin(point: &Path) -> Option<Self> {
        let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
            skip::record(None, "needs /dev/fuse");
            return None;
        };
        fs::create_dir_all(point).unwrap();
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other");
        let options = std::ffi::CString::new(options).unwrap();
        mount("small", point, "fuse", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        let is_silent = Arc::new(AtomicBool::new(false));
        let (served, silent) = (device.try_clone().unwrap(), is_silent.clone());
        let server = Some(thread::spawn(move || serve(served, &silent)));
        Some(Self { point: point.to_owned(), device: Some(device), is_silent, server })
    }

    /// Answers nothing from now on.
    fn hang(&mut self) {
        self.is_silent.store(true, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }

    /// Ends, as a server does that was killed: every request fails.
    fn die(&mut self) {
        self.hang();
        self.device = None;
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        self.is_silent.store(true, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
        self.device = None;
        let _ = lazy_unmount(&self.point);
    }
}

fn serve(mut device: File, is_silent: &AtomicBool) {
    let mut request = vec![0; 1 << 20];
    let soon = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !is_silent.load(Ordering::Relaxed) {
        let mut wait = [PollFd::new(&device, PollFlags::IN)];
        if poll(&mut wait, Some(&soon)).unwrap() == 0 {
            continue;
        }
        let Ok(length) = device.read(&mut request) else { return };
        if let Some(answer) = answer(&request[..length]) {
            device.write_all(&answer).unwrap();
        }
    }
}

/// `struct fuse_in_header` is 40 bytes, `struct fuse_out_header` 16.
fn answer(request: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
    let node = u64::from(number(16));
    let (error, body) = match number(4) {
        FORGET => return None,
        // `struct fuse_init_out`: version 7.31, and what may be read and written at a time.
        INIT => (0, padded(&[7, 31, 65536, 0, 0, 65536, 1], 64)),
        // The inode, and no time for which it may be kept.
        LOOKUP => (0, [padded(&[2], 40), attributes(2)].concat()),
        GETATTR => (0, [padded(&[], 16), attributes(node)].concat()),
        OPEN => (0, padded(&[], 16)),
        READ => (0, vec![0; usize::try_from(number(56)).unwrap()]),
        _ => (NOSYS, Vec::new()),
    };
    let length = u32::try_from(16 + body.len()).unwrap();
    Some([&length.to_le_bytes(), &error.to_le_bytes(), &request[8..16], &*body].concat())
}

/// `struct fuse_attr` of the root, 1, or of the file.
fn attributes(node: u64) -> Vec<u8> {
    let is_file = node != 1;
    let size = if is_file { u32::try_from(MIB).unwrap() } else { 0 };
    let mode = if is_file { 0o100_600 } else { 0o40_700 };
    let node = u32::try_from(node).unwrap();
    padded(&[node, 0, size, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096], 88)
}

fn padded(words: &[u32], length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(length, 0);
    bytes
}

fn attach(file: &Path) -> Loop {
    let options = LoopOptions { read_only: true, ..LoopOptions::default() };
    loopdev::attach(&File::open(file).unwrap(), &options).unwrap().into_loop()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_device_of_others_on_a_mount_that_hangs_or_died_stops_no_pool() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let Some(mut small) = SmallMount::begin(&bench.path("small")) else { return };
    let device = attach(&bench.path("small/file"));
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    driver.bring_up(&a).await.unwrap();
    small.hang();
    let b = made_on(&bench, &driver, "default", "b").await.unwrap();
    fill(&driver, &b).await;
    // No thread of it waits for that mount, so that it can be killed.
    driver.kill().await;
    let driver = bench.start().await;
    driver.health(&a.id).await.unwrap();
    driver.take_down(&a).await.unwrap();
    driver.delete(&b.id).await.unwrap();
    small.die();
    fill(&driver, &a).await;
    driver.kill().await;
    let driver = bench.start().await;
    fill(&driver, &a).await;
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
    loopdev::detach(&device).unwrap();
}
