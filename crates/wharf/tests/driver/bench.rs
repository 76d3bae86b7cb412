//! A temporary folder with a pool, and a check that nothing of it is left.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;
use wharf_mount::{freeze, loopdev, mount, mountinfo};
use wharf_testkit::skip;

use crate::running::Running;

pub(crate) const WHARF: &str = env!("CARGO_BIN_EXE_wharf");
pub(crate) const NODE: &str = "node-1";
pub(crate) const MIB: u64 = 1 << 20;

/// How the pool of a bench keeps its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// In a folder of whatever filesystem temporary files are on; ext4 as a rule, which cannot
    /// share blocks.
    Copy,
    /// On XFS in an image of this size, in MiB.
    Reflink(u64),
    /// On btrfs of this size, in MiB, mounted by hand.
    Btrfs(u64),
}

/// A folder with a pool, staging paths and target paths.
///
/// When it goes, everything that is mounted below it is unmounted and the loop devices of files
/// below it are detached.
pub(crate) struct Bench {
    folder: TempDir,
    root: PathBuf,
    cgroups: PathBuf,
    flags: Vec<String>,
    config: Option<PathBuf>,
}

impl Bench {
    /// A new bench, or `None` where this machine cannot have one; the current test is then recorded
    /// as skipped.
    pub(crate) fn new(kind: PoolKind) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip::record(None, "needs root");
            return None;
        }
        let programs: &[_] = match kind {
            PoolKind::Copy => &["mkfs.ext4"],
            PoolKind::Reflink(_) => &["mkfs.ext4", "mkfs.xfs"],
            PoolKind::Btrfs(_) => &["mkfs.ext4", "mkfs.btrfs"],
        };
        needs(programs)?;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["stage", "pods", "cgroup"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let cgroups = root.join("cgroup");
        let mut bench = Self { folder, root, cgroups, flags: Vec::new(), config: None };
        match kind {
            PoolKind::Copy => {}
            PoolKind::Reflink(size) => bench = bench.flag("--pool-image", format!("{size}Mi")),
            PoolKind::Btrfs(size) => bench.mount_btrfs(size * MIB),
        }
        Some(bench)
    }

    /// A new bench whose pool allows thin volumes, too.
    pub(crate) fn with_thin(kind: PoolKind) -> Option<Self> {
        Some(Self::new(kind)?.flag("--kinds", "thick,thin"))
    }

    /// Mounts a new btrfs where the pool will be.
    fn mount_btrfs(&self, size: u64) {
        let (disk, pool) = (self.path("disk"), self.pool());
        std::fs::create_dir(&pool).unwrap();
        std::fs::File::create(&disk).unwrap().set_len(size).unwrap();
        for command in ["mkfs.btrfs --quiet", "mount -o loop"] {
            let mut words = command.split(' ');
            let mut command = Command::new(words.next().unwrap());
            command.args(words).arg(&disk);
            if command.get_program() == "mount" {
                command.arg(&pool);
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }

    /// One more flag for each start.
    pub(crate) fn flag(mut self, name: &str, value: impl Into<String>) -> Self {
        self.flags.extend([name.to_owned(), value.into()]);
        self
    }

    /// Names the pools in this file, instead of one by a flag.
    pub(crate) fn config(mut self, file: &Path) -> Self {
        self.config = Some(file.to_owned());
        self
    }

    /// The cgroups that limits are written to, none unless said.
    pub(crate) fn cgroups(mut self, root: &Path) -> Self {
        root.clone_into(&mut self.cgroups);
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The folder that --pool names.
    pub(crate) fn pool(&self) -> PathBuf {
        self.path("pool")
    }

    /// The folder with the images.
    pub(crate) fn images(&self) -> PathBuf {
        wharf_driver::pool_image::folder(&self.pool())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("csi.sock")
    }

    /// The command line of the driver.
    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(WHARF);
        command.arg("driver").arg("--endpoint").arg(format!("unix://{}", self.socket().display()));
        match &self.config {
            Some(file) => command.arg("--config").arg(file),
            None => command.arg("--pool").arg(self.pool()),
        };
        command.args(["--node", NODE]);
        command.arg("--state-dir").arg(self.path("state"));
        command.arg("--cgroup-root").arg(&self.cgroups).args(&self.flags).args(more);
        command
    }

    /// The driver, ready.
    pub(crate) async fn start(&self) -> Running {
        self.start_with(&[]).await
    }

    pub(crate) async fn start_with(&self, more: &[&str]) -> Running {
        Running::start(&self.command(more), &self.root, &self.socket()).await.unwrap()
    }

    /// `wharf driver pool` on the driver of this bench.
    pub(crate) fn driver_command(&self, verb: &str, more: &[&str]) -> Output {
        let mut command = Command::new(WHARF);
        command.args(["driver", "pool", verb, "--state-dir"]).arg(self.path("state")).args(more);
        command.output().unwrap()
    }

    /// `wharf driver pool` on this pool.
    pub(crate) fn pool_command(&self, verb: &str, more: &[&str]) -> Output {
        let mut command = Command::new(WHARF);
        command.args(["driver", "pool", verb, "--pool"]).arg(self.pool()).args(more);
        command.output().unwrap()
    }

    /// What the pool holds, as its own `ls` tells it.
    pub(crate) fn rows(&self) -> Vec<wharf_driver::inspect::Row> {
        let output = self.pool_command("ls", &["--output", "json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The images of volumes and snapshots, and whatever else is in the pool's folders.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let folders = ["volumes", "snapshots", "partial", "quarantine", "ephemeral", "reserve"];
        let folders = folders.map(|name| self.images().join(name));
        let mut files: Vec<_> =
            folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().collect();
        files.drain(..).map(|entry| entry.unwrap().path()).collect()
    }

    /// Nothing is left of any volume: no file, no loop device, no mount, no path.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.files(), Vec::<PathBuf>::new());
        let own = self.images();
        let loops: Vec<_> = loops_below(&own).into_iter().map(|(_, backing)| backing).collect();
        assert_eq!(loops, Vec::<PathBuf>::new());
        let mounts: Vec<_> = mounts_below(&self.root).into_iter().filter(|it| *it != own).collect();
        assert_eq!(mounts, Vec::<PathBuf>::new());
        assert_eq!(self.path("pods").read_dir().unwrap().count(), 0, "a target path is left");
    }

    /// What a reboot does: mounts and loop devices are gone, files stay.
    pub(crate) fn reboot(&self) {
        clear(&self.root);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        clear(self.folder.path());
    }
}

/// Whether these programs are there; the current test is recorded as skipped if not.
pub(crate) fn needs(programs: &[&str]) -> Option<()> {
    let known = wharf_mount::programs::Programs::default();
    match programs.iter().find(|program| !known.has(program)) {
        None => Some(()),
        Some(missing) => {
            skip::record(None, &format!("needs the program {missing}"));
            None
        }
    }
}

/// The loop devices of files below a folder.
pub(crate) fn loops_below(folder: &Path) -> Vec<(loopdev::Loop, PathBuf)> {
    let all = loopdev::list().unwrap().into_iter();
    let ours = all.filter(|status| status.loopdev.backing.starts_with(folder));
    ours.map(|status| (status.loopdev.clone(), status.loopdev.backing)).collect()
}

/// Mount points below a folder, in the order in which they were mounted.
pub(crate) fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let points = mountinfo::table().unwrap().into_iter().map(|mount| mount.point);
    points.filter(|point| point.starts_with(folder)).collect()
}

/// The loop devices that are mounted below a folder, or whose nodes are.
fn loops_shown_below(folder: &Path) -> Vec<loopdev::Loop> {
    let mounts = mountinfo::table().unwrap_or_default().into_iter();
    let mounts: Vec<_> = mounts.filter(|mount| mount.point.starts_with(folder)).collect();
    let is_shown = |device: &loopdev::Loop| {
        let node = Path::new("/").join(device.path.file_name().unwrap());
        mounts.iter().any(|mount| Path::new(&mount.source) == device.path || mount.root == node)
    };
    let all = loopdev::list().unwrap_or_default().into_iter().map(|status| status.loopdev);
    all.filter(is_shown).collect()
}

/// Unmounts and detaches all below a folder, in rounds: a pool's image is busy until its volumes
/// are gone.
fn clear(folder: &Path) {
    // A pool whose mount was detached hides the paths of its images: their devices are known by
    // what is mounted of them.
    let shown = loops_shown_below(folder);
    for round in 0..4 {
        let points = mounts_below(folder);
        for point in points.iter().rev() {
            // A filesystem that stays frozen could never be unmounted.
            let _ = freeze::thaw(point);
            if mount::unmount(point).is_err() && round > 1 {
                // Only now: it hides the paths by which loop devices are found.
                let _ = mount::lazy_unmount(point);
            }
        }
        let loops = loops_below(folder);
        for device in loops.iter().map(|(device, _)| device).chain(&shown) {
            // One that is still mounted, of a pool, goes in the next round.
            let number = loopdev::device_number(&device.path);
            if number.and_then(mountinfo::of_device).is_ok_and(|mounts| mounts.is_empty()) {
                let _ = loopdev::detach(device);
            }
        }
        if points.is_empty() && loops.is_empty() {
            return;
        }
    }
}
