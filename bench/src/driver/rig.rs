//! A folder with a driver and its pool, and nothing of it left behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::interval;
use wharf_mount::{freeze, loopdev, mount, mountinfo, space};
use wharf_testkit::process::Process;

use super::client::Client;

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(20);
/// Between two looks for the socket of a driver that starts.
const LOOK: Duration = Duration::from_millis(1);

/// A folder for one pool. When it goes, everything mounted below it is unmounted, and the loop devices of files below it
/// are detached.
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
    /// A rig for the driver at `binary`, which is started with these flags, too.
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

    /// Bytes that the disk of the folder has left.
    pub(super) fn room(&self) -> Result<u64> {
        Ok(space::usage(self.folder.path())?.available)
    }

    /// Starts the driver; it is ready after the time that is returned.
    pub(super) async fn start(&self) -> Result<(Running, Duration)> {
        let socket = self.path("csi.sock");
        // Left by a driver that was killed.
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

    /// More connections to the driver that runs.
    pub(super) fn clients(&self, count: usize) -> Vec<Client> {
        (0..count).map(|_| Client::new(&self.path("csi.sock"))).collect()
    }
}

impl Running {
    /// The driver's process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks the driver to end.
    pub(super) async fn stop(self) -> Result<()> {
        self.process.stop(STOP).await.map(drop)
    }

    /// Ends the driver in the middle of whatever it does.
    pub(super) async fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait(STOP).await.map(drop)
    }
}

/// A socket appears only once it listens; readiness is the driver's own word.
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

/// The image of a pool is busy until those of its volumes are detached: hence the rounds.
fn clear(folder: &Path) -> Result<()> {
    let folder = folder.canonicalize()?;
    for _ in 0..3 {
        let points = mountinfo::table()?.into_iter().map(|mount| mount.point);
        let points: Vec<_> = points.filter(|point| point.starts_with(&folder)).collect();
        for point in points.iter().rev() {
            // A filesystem that stays frozen could never be unmounted.
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
