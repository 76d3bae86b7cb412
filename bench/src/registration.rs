//! Plugin registration: its latency, its throughput, and its cost when idle.
//!
//! Latencies are measured with the manager and the plugins in this process, so they include the
//! plugins' time. Memory, descriptors and idle work are those of the release binary in its own
//! process.

mod announcer;
mod api;
mod binary;
mod churn;
mod idle;
mod kubelet;
mod latency;
mod noop;
mod plugin;
mod registrar;
mod start;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::binary::Binary;
use crate::{Arguments, report::Report};

/// Repetitions of each part.
struct Counts {
    single: usize,
    crowds: usize,
    api: usize,
    kubelet: usize,
    present: usize,
    churn: usize,
    idle_seconds: u64,
    starts: usize,
}

impl Counts {
    const FULL: Self = Self {
        single: 200,
        crowds: 9,
        api: 50,
        kubelet: 20,
        present: 1000,
        churn: 10_000,
        idle_seconds: 60,
        starts: 20,
    };
    const QUICK: Self = Self {
        single: 20,
        crowds: 3,
        api: 5,
        kubelet: 2,
        present: 100,
        churn: 500,
        idle_seconds: 10,
        starts: 3,
    };
}

/// Measures all parts.
pub(crate) fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    raise_open_files()?;
    let counts = if arguments.quick { Counts::QUICK } else { Counts::FULL };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(arguments, &counts, report))
}

async fn measure(arguments: &Arguments, counts: &Counts, report: &mut Report) -> Result<()> {
    let binary = Binary::new(&arguments.binary)?;
    latency::measure(counts.single, counts.crowds, report).await.context("latency")?;
    start::measure(counts.present, report).await.context("start")?;
    let ours = api::measure(&binary, counts.api, report).await.context("Kubernetes API")?;
    kubelet::measure(&binary, counts.kubelet, ours, report).await.context("kubelet")?;
    churn::measure(&binary, counts.churn, report).await.context("churn")?;
    idle::measure(&binary, counts.idle_seconds, report).await.context("idle")?;
    let opponent = arguments.peers.as_deref();
    registrar::measure(&binary, opponent, counts.starts, report).await.context("registrar")
}

/// A thousand plugins need a few thousand descriptors, all of them in this process.
fn raise_open_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("raising the limit of open files")
}
