//! The runtime proxy: what a call costs beyond the runtime, in time, order and memory.
//!
//! The proxy is the release binary behind its socket. Runtime and hook servers are processes of their own, too, which are
//! this program again, so that nobody shares a thread with the caller that measures. The caller's opponents are the way
//! without a proxy and koord-runtime-proxy, in turns with ours: targets are shares of these, or differences to them. A
//! relay that only copies bytes shows what any process in between costs on this machine.

mod calls;
mod client;
mod config;
mod hooks;
mod hostile;
mod info;
mod large;
mod load;
mod records;
mod relay;
mod rig;
mod runtime;
mod server;
mod side;
mod unary;
mod upgrade;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;

use crate::Arguments;
use crate::report::Report;

/// How often each thing is done.
struct Counts {
    rounds: usize,
    unary: usize,
    hooked: usize,
    large: usize,
    load: Duration,
    containers: [usize; 2],
    changes: usize,
}

impl Counts {
    const FULL: Self = Self {
        rounds: 5,
        unary: 5000,
        hooked: 2000,
        large: 72,
        load: Duration::from_secs(60),
        containers: [500, 10_000],
        changes: 20,
    };
    const QUICK: Self = Self {
        rounds: 1,
        unary: 500,
        hooked: 200,
        large: 2,
        load: Duration::from_secs(3),
        containers: [50, 500],
        changes: 3,
    };
}

/// The processes around the proxy. The bench starts them; nobody else needs to.
#[derive(Subcommand)]
pub(crate) enum Part {
    /// A runtime that remembers what it made
    Runtime {
        /// The socket to serve
        #[arg(long)]
        socket: PathBuf,
        /// How long an update takes
        #[arg(long, default_value_t = 0)]
        update_milliseconds: u64,
    },
    /// A relay that copies bytes and reads nothing
    Relay {
        /// The socket to serve
        #[arg(long)]
        socket: PathBuf,
        /// The socket that connections are carried to
        #[arg(long)]
        to: PathBuf,
    },
    /// A hook server that changes nothing
    Hooks {
        /// The socket to serve
        #[arg(long)]
        socket: PathBuf,
    },
}

impl Part {
    /// Serves until it is killed.
    pub(crate) fn run(&self) -> ExitCode {
        let served = tokio().and_then(|tokio| match self {
            Self::Runtime { socket, update_milliseconds } => {
                tokio.block_on(runtime::serve(socket, Duration::from_millis(*update_milliseconds)))
            }
            Self::Relay { socket, to } => tokio.block_on(relay::serve(socket, to)),
            Self::Hooks { socket } => tokio.block_on(hooks::serve(socket)),
        });
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Measures everything about the proxy.
pub(crate) fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    ensure!(
        arguments.binary.is_file(),
        "--binary {}: there is no such file",
        arguments.binary.display()
    );
    let counts = if arguments.quick { Counts::QUICK } else { Counts::FULL };
    tokio()?.block_on(measure(&arguments.binary, &counts, report))
}

async fn measure(binary: &Path, counts: &Counts, report: &mut Report) -> Result<()> {
    unary::measure_carried(binary, counts, report).await.context("calls that are passed on")?;
    unary::measure_hooked(binary, counts, report).await.context("calls with a hook")?;
    large::measure_decoded(binary, counts, report).await.context("large answers")?;
    large::measure_bytes(binary, counts, report).await.context("large answers, not decoded")?;
    load::measure(binary, counts, report).await.context("load")?;
    records::measure(binary, counts, report).await.context("records")?;
    config::measure(binary, counts, report).await.context("configuration")?;
    hostile::measure(binary, counts, report).await.context("attacks")?;
    upgrade::measure(binary, counts, report).await.context("upgrades")
}

/// One thread, as most of what stands on either side of a proxy has for one connection: to wake another up takes longer
/// than the work.
fn tokio() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
