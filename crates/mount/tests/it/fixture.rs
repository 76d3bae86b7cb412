//! A folder for images and mount points that unmounts and detaches everything on drop.

use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use wharf_mount::{
    Filesystem,
    format::{FormatOptions, format},
    loopdev::{self, Loop, LoopOptions},
    mount::{self, MountOptions},
    programs::Programs,
    space,
};
use wharf_testkit::skip;

pub(crate) const MIB: u64 = 1 << 20;
/// mkfs and fsck take milliseconds on these images, but the machine may be busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Fixture {
    folder: TempDir,
    mounts: RefCell<Vec<PathBuf>>,
    loops: RefCell<Vec<Loop>>,
}

/// Creates a fixture, or returns `None` to skip a test because root or one of `programs` is
/// missing.
pub(crate) fn fixture(programs: &[&str]) -> Option<Fixture> {
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
    Some(Fixture { folder, mounts: RefCell::default(), loops: RefCell::default() })
}

/// The program that creates `fs`, and a small size for it.
pub(crate) fn needs(fs: Filesystem) -> (&'static str, u64) {
    match fs {
        Filesystem::Ext4 => ("mkfs.ext4", 32 * MIB),
        Filesystem::Xfs => ("mkfs.xfs", 300 * MIB),
    }
}

impl Fixture {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a sparse image.
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

    /// Detaches the device when the test ends.
    pub(crate) fn adopt(&self, attached: &Loop) {
        self.loops.borrow_mut().push(attached.clone());
    }

    /// Unmounts `path` when the test ends, if it is mounted.
    pub(crate) fn will_mount(&self, path: &Path) {
        self.mounts.borrow_mut().push(path.to_owned());
    }

    pub(crate) fn mount(&self, device: &Path, fs: Filesystem, target: &Path, flags: &[&str]) {
        self.will_mount(target);
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        let options = MountOptions { read_only: false, flags };
        mount::mount(device, target, fs, &options).unwrap();
    }

    /// Creates an image with a filesystem and attaches it.
    pub(crate) fn formatted(&self, name: &str, fs: Filesystem, size: u64) -> Loop {
        let image = self.image(name, size);
        let attached = self.attach(&image, &LoopOptions::default());
        let options = FormatOptions { zeroed: true, ..FormatOptions::default() };
        format(fs, &attached.path, &options, DEADLINE).unwrap();
        attached
    }

    /// Like [`Self::formatted`], and mounts it at the folder `name.mnt`.
    pub(crate) fn mounted(&self, name: &str, fs: Filesystem, size: u64) -> (Loop, PathBuf) {
        let attached = self.formatted(name, fs, size);
        let target = self.folder(&format!("{name}.mnt"));
        self.mount(&attached.path, fs, &target, &[]);
        (attached, target)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for path in self.mounts.borrow().iter().rev() {
            while mount::lazy_unmount(path).unwrap_or(false) {}
        }
        for attached in self.loops.borrow().iter().rev() {
            let _ = loopdev::detach(attached);
        }
    }
}
