//! The CSI sidecars: their memory, their throughput, and the number of their API calls.
//!
//! Ours is the release binary with all controllers in one process. It is compared with the Go
//! sidecars, one process each, and with a bare client that only makes the same writes. All of them
//! work on a real kube-apiserver, one at a time, each with its own driver, which keeps volumes in
//! memory. The bench acts for the rest of a cluster: it makes claims, binds them, and makes
//! attachments and snapshots.

mod api;
mod bare;
mod calls;
mod cut;
mod driver;
mod failover;
mod latency;
mod memory;
mod objects;
mod observation;
mod operation;
mod rates;
mod rig;
mod side;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use self::side::Programs;
use crate::{Arguments, report::Report};

/// Which parts of the sidecars to measure; by default all.
#[derive(Args)]
pub(crate) struct Options {
    /// Measure this part only; may be given more than once
    #[arg(long, value_name = "TOPIC")]
    only: Vec<Topic>,
    /// Rounds of rates; an even number, so that ours and the bare client come first equally often
    #[arg(long, value_name = "COUNT", value_parser = even)]
    rounds: Option<usize>,
}

fn even(text: &str) -> Result<usize, &'static str> {
    let number = text.parse().ok().filter(|number: &usize| *number > 0 && number.is_multiple_of(2));
    number.ok_or("expected an even number such as 6")
}

/// Parts that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Topic {
    Idle,
    Calls,
    Failover,
    Claims,
    Attachments,
    Expansions,
    Snapshots,
    Latency,
    Memory,
    Cut,
}

impl Options {
    fn wants(&self, topic: Topic) -> bool {
        self.only.is_empty() || self.only.contains(&topic)
    }
}

/// Repetitions of each part.
struct Counts {
    rounds: usize,
    /// Claims and attachments.
    many: usize,
    /// Expansions and snapshots: Go drops events of 1000 expansions, and snapshots take long.
    few: usize,
    /// Claims, expansions and snapshots for Go at its defaults.
    slow: [usize; 3],
    paced: usize,
    audited: usize,
    objects: usize,
}

impl Counts {
    const FULL: Self = Self {
        rounds: 6,
        many: 1000,
        few: 300,
        slow: [60, 30, 12],
        paced: 200,
        audited: 5,
        objects: 10_000,
    };
    const QUICK: Self = Self {
        rounds: 2,
        many: 100,
        few: 30,
        slow: [20, 8, 3],
        paced: 30,
        audited: 2,
        objects: 500,
    };
}

/// Helper processes, which the bench starts.
#[derive(Subcommand)]
pub(crate) enum Part {
    /// A driver that supports all sidecars, with volumes in memory
    Driver {
        /// The driver's name
        #[arg(long)]
        name: String,
        /// The socket to serve
        #[arg(long)]
        socket: PathBuf,
    },
}

impl Part {
    /// Serves until it is killed.
    pub(crate) fn run(&self) -> ExitCode {
        let Self::Driver { name, socket } = self;
        match driver::serve(name, socket) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Measures the chosen parts.
pub(crate) fn run(arguments: &Arguments, options: &Options, report: &mut Report) -> Result<()> {
    let counts = if arguments.quick { Counts::QUICK } else { Counts::FULL };
    let counts = Counts { rounds: options.rounds.unwrap_or(counts.rounds), ..counts };
    let programs = Programs::find(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(&programs, &counts, options, report))
}

async fn measure(
    programs: &Programs,
    counts: &Counts,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    if options.wants(Topic::Idle) {
        memory::measure_idle(programs, report).await.context("idle")?;
    }
    if options.wants(Topic::Calls) {
        calls::measure(programs, counts.audited, report).await.context("calls")?;
    }
    if options.wants(Topic::Failover) {
        failover::measure(programs, report).await.context("failover")?;
    }
    let is_wanted = |topic| options.wants(topic);
    rates::measure(programs, counts, is_wanted, report).await.context("rates")?;
    if options.wants(Topic::Latency) {
        latency::measure(programs, counts.paced, report).await.context("latency")?;
    }
    if options.wants(Topic::Memory) {
        memory::measure_loaded(programs, counts.objects, report).await.context("memory")?;
    }
    if options.wants(Topic::Cut) {
        cut::measure(programs, counts.objects, report).await.context("cut")?;
    }
    Ok(())
}
