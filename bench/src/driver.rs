//! The local-storage driver: the cost of its calls beyond the disk, and of a volume beyond its
//! pool.
//!
//! The driver is the release binary behind its socket. It is compared with the disk: every target
//! is a share of the disk's speed for the same work without a driver, measured alternately.

mod client;
mod create;
mod extents;
mod fio;
mod raw;
mod rig;
mod snapshot;
mod staged;
mod start;
mod unshare;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use rustix::process::geteuid;
use tokio::signal::ctrl_c;
use wharf_mount::programs::Programs;

use self::rig::Rig;
use crate::{Arguments, report::Report};

/// A pool in which copies of thick volumes are unshared, and volumes may be thin.
const KINDS: [&str; 2] = ["--kinds", "thick,thin"];

/// The size of the pool for the snapshot and fio parts.
const POOL_IMAGE: &str = "8Gi";

/// Which parts of the driver to measure; by default all.
#[derive(Args)]
pub(crate) struct Options {
    /// Measure this part only; may be given more than once
    #[arg(long, value_name = "TOPIC")]
    only: Vec<Topic>,
}

/// Parts that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Topic {
    Create,
    Start,
    Staged,
    Snapshots,
    Fio,
    Unshared,
}

impl Options {
    fn wants(&self, topic: Topic) -> bool {
        self.only.is_empty() || self.only.contains(&topic)
    }
}

/// Repetitions of each part.
struct Counts {
    single: usize,
    crowd: usize,
    crowds: usize,
    present: usize,
    starts: usize,
    flushes: usize,
    cuts: usize,
    overwrites: u64,
    staged: usize,
    calls: usize,
    fio: fio::Counts,
}

impl Counts {
    const FULL: Self = Self {
        single: 200,
        crowd: 1000,
        crowds: 3,
        present: 10_000,
        starts: 5,
        flushes: 7,
        cuts: 20,
        overwrites: 6000,
        staged: 1000,
        calls: 200,
        fio: fio::Counts { rounds: 5, seconds: 3 },
    };
    const QUICK: Self = Self {
        single: 20,
        crowd: 96,
        crowds: 1,
        present: 500,
        starts: 1,
        flushes: 1,
        cuts: 3,
        overwrites: 600,
        staged: 50,
        calls: 20,
        fio: fio::Counts { rounds: 1, seconds: 1 },
    };
}

/// Measures the driver.
pub(crate) fn run(arguments: &Arguments, options: &Options, report: &mut Report) -> Result<()> {
    ensure!(geteuid().is_root(), "the driver attaches and mounts: run this bench as root");
    let counts = if arguments.quick { Counts::QUICK } else { Counts::FULL };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Rigs unmount and detach on drop, so an interrupt must not end the process at once.
        tokio::select! {
            measured = measure(&arguments.binary, options, &counts, report) => measured,
            _ = ctrl_c() => bail!("interrupted"),
        }
    })
}

async fn measure(
    binary: &Path,
    options: &Options,
    counts: &Counts,
    report: &mut Report,
) -> Result<()> {
    let wants = |topic| options.wants(topic);
    if wants(Topic::Create) {
        create::measure(&Rig::new(binary, &[])?, counts, report).await.context("create")?;
    }
    if wants(Topic::Start) {
        start::measure(&Rig::new(binary, &KINDS)?, counts, report).await.context("start")?;
    }
    if wants(Topic::Staged) {
        staged::measure(&Rig::new(binary, &[])?, counts, report).await.context("staged")?;
    }
    if ![Topic::Snapshots, Topic::Fio, Topic::Unshared].map(wants).contains(&true) {
        return Ok(());
    }
    if !Programs::default().has("mkfs.xfs") {
        report.section("volumes on a pool with reflinks");
        report.not_measured("snapshots and fio", "mkfs.xfs, of xfsprogs, is not there");
        return Ok(());
    }
    if wants(Topic::Snapshots) || wants(Topic::Fio) {
        let reflinks = Rig::new(binary, &["--pool-image", POOL_IMAGE])?;
        if wants(Topic::Snapshots) {
            snapshot::measure(&reflinks, counts, report).await.context("snapshot")?;
            extents::measure(&reflinks, counts, report).await.context("extents")?;
        }
        if wants(Topic::Fio) {
            fio::measure(&reflinks, counts.fio, report).await.context("fio")?;
        }
    }
    if wants(Topic::Unshared) {
        let unshared = Rig::new(binary, &["--pool-image", POOL_IMAGE, KINDS[0], KINDS[1]])?;
        unshare::measure(&unshared, counts.fio, report).await.context("unshare")?;
    }
    Ok(())
}
