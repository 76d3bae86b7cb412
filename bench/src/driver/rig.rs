//! A folder with a driver and its pool, cleaned up on drop.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::interval;
use wharf_mount::{freeze, loopdev, mount, mountinfo, space};
use wharf_testkit::process::Process;

use super::client::Client;

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(20);
/// Time between two looks for the socket of a starting driver.
const LOOK: Duration = Duration::from_millis(1);

/// A folder for one pool. Dropping it unmounts everything below it, and detaches the loop devices
/// of files below it.
pub(super) struct Rig {
    binary: PathBuf,
    folder: TempDir,
    flags: Vec<String>,
}

/// A driver that serves the pool of a rig.
pub(super) struct Running {
    pub(super) client: Client,
    process: Process,
}

impl Rig {
    /// A rig for the driver at `binary`, which gets these additional flags.
    pub(super) fn new(binary: &Path, flags: &[&str]) -> Result<Self> {
        ensure!(binary.is_file(), "--binary {}: there is no such file", binary.display());
        let folder = tempfile::tempdir()?;
        for name in ["pool", "stage", "pods"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Ok(Self { binary: binary.to_owned(), folder, flags })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder with the images.
    pub(super) fn images(&self) -> PathBuf {
        wharf_driver::pool_image::folder(&self.path("pool"))
    }

    /// Free space on the folder's disk, in bytes.
    pub(super) fn room(&self) -> Result<u64> {
        Ok(space::usage(self.folder.path())?.available)
    }

    /// Starts the driver; returns how long it took until it was ready.
    pub(super) async fn start(&self) -> Result<(Running, Duration)> {
        let socket = self.path("csi.sock");
        // A driver that was killed leaves its socket.
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(&self.binary);
        command.arg("driver").arg("--endpoint").arg(format!("unix://{}", socket.display()));
        command.arg("--pool").arg(self.path("pool")).arg("--state-dir").arg(self.path("state"));
        command.args(["--node", "bench", "--attach=false", "--floor=64Mi"]).args(&self.flags);
        let begun = Instant::now();
        let mut process = Process::start("driver", &command, self.folder.path())?;
        let there = tokio::time::timeout(START, ready(&socket));
        let client = match there.await {
            Ok(client) => client,
            Err(_) => {
                process
                    .ready(LOOK, "the driver's first answer", || std::future::ready(None))
                    .await?
            }
        };
        Ok((Running { client, process }, begun.elapsed()))
    }

    /// Further connections to the running driver.
    pub(super) fn clients(&self, count: usize) -> Vec<Client> {
        (0..count).map(|_| Client::new(&self.path("csi.sock"))).collect()
    }
}

impl Running {
    /// The driver's process ID.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops the driver with SIGTERM.
    pub(super) async fn stop(self) -> Result<()> {
        self.process.stop(STOP).await.map(drop)
    }

    /// Kills the driver.
    pub(super) async fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait(STOP).await.map(drop)
    }
}

/// The socket appears when the driver listens; Probe reports when it is ready.
async fn ready(socket: &Path) -> Client {
    let mut look = interval(LOOK);
    loop {
        look.tick().await;
        if socket.exists() {
            let client = Client::new(socket);
            if client.ready().await {
                return client;
            }
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Err(error) = clear(self.folder.path()) {
            eprintln!("{}: not all is cleaned up: {error:#}", self.folder.path().display());
        }
    }
}

/// The image of a pool is busy until those of its volumes are detached, so this takes several
/// rounds.
fn clear(folder: &Path) -> Result<()> {
    let folder = folder.canonicalize()?;
    for _ in 0..3 {
        let points = mountinfo::table()?.into_iter().map(|mount| mount.point);
        let points: Vec<_> = points.filter(|point| point.starts_with(&folder)).collect();
        for point in points.iter().rev() {
            // A frozen filesystem cannot be unmounted.
            freeze::thaw(point)
                .or_else(|error| if point.is_dir() { Err(error) } else { Ok(false) })?;
            mount::unmount(point).or_else(|_| mount::lazy_unmount(point))?;
        }
        let loops = loopdev::list()?.into_iter();
        let loops: Vec<_> =
            loops.filter(|status| status.loopdev.backing.starts_with(&folder)).collect();
        for status in &loops {
            loopdev::detach(&status.loopdev).context("detach")?;
        }
        if points.is_empty() && loops.is_empty() {
            break;
        }
    }
    Ok(())
}
