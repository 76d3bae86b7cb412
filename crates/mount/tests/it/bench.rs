//! A folder for images and mount points, in which nothing stays mounted or attached.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use wharf_mount::format::{FormatOptions, format};
use wharf_mount::loopdev::{self, Loop, LoopOptions};
use wharf_mount::mount::{self, MountOptions};
use wharf_mount::programs::Programs;
use wharf_mount::{Filesystem, space};
use wharf_testkit::skip;

pub(crate) const MIB: u64 = 1 << 20;
/// mkfs and fsck take milliseconds on these images; the machine may be busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    folder: TempDir,
    mounts: RefCell<Vec<PathBuf>>,
    loops: RefCell<Vec<Loop>>,
}

/// A bench, or `None` for a test that is skipped since it lacks root, or `programs`.
pub(crate) fn bench(programs: &[&str]) -> Option<Bench> {
    if !rustix::process::geteuid().is_root() {
        skip::record(None, "needs root");
        return None;
    }
    let installed = Programs::default();
    if let Some(missing) = programs.iter().find(|program| !installed.has(program)) {
        skip::record(None, &format!("needs the program {missing}"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    Some(Bench { folder, mounts: RefCell::default(), loops: RefCell::default() })
}

/// The program that makes `fs`, and its smallest comfortable size.
pub(crate) fn needs(fs: Filesystem) -> (&'static str, u64) {
    match fs {
        Filesystem::Ext4 => ("mkfs.ext4", 32 * MIB),
        Filesystem::Xfs => ("mkfs.xfs", 300 * MIB),
    }
}

impl Bench {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new sparse image.
    pub(crate) fn image(&self, name: &str, size: u64) -> File {
        let path = self.path(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        space::allocate(&file, size, false).unwrap();
        file
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    pub(crate) fn attach(&self, image: &File, options: &LoopOptions) -> Loop {
        let attached = loopdev::attach(image, options).unwrap().into_loop();
        self.adopt(&attached);
        attached
    }

    /// Detaches it when the test ends.
    pub(crate) fn adopt(&self, attached: &Loop) {
        self.loops.borrow_mut().push(attached.clone());
    }

    /// Unmounts `path` when the test ends, if it is mounted then.
    pub(crate) fn will_mount(&self, path: &Path) {
        self.mounts.borrow_mut().push(path.to_owned());
    }

    pub(crate) fn mount(&self, device: &Path, fs: Filesystem, target: &Path, flags: &[&str]) {
        self.will_mount(target);
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        let options = MountOptions { read_only: false, flags };
        mount::mount(device, target, fs, &options).unwrap();
    }

    /// A filesystem in a new image, attached, not mounted.
    pub(crate) fn formatted(&self, name: &str, fs: Filesystem, size: u64) -> Loop {
        let image = self.image(name, size);
        let attached = self.attach(&image, &LoopOptions::default());
        let options = FormatOptions { zeroed: true, ..FormatOptions::default() };
        format(fs, &attached.path, &options, DEADLINE).unwrap();
        attached
    }

    /// The same, mounted at the folder `name.mnt`.
    pub(crate) fn mounted(&self, name: &str, fs: Filesystem, size: u64) -> (Loop, PathBuf) {
        let attached = self.formatted(name, fs, size);
        let target = self.folder(&format!("{name}.mnt"));
        self.mount(&attached.path, fs, &target, &[]);
        (attached, target)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for path in self.mounts.borrow().iter().rev() {
            while mount::lazy_unmount(path).unwrap_or(false) {}
        }
        for attached in self.loops.borrow().iter().rev() {
            let _ = loopdev::detach(attached);
        }
    }
}
