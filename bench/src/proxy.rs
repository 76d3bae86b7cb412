//! The runtime proxy: the cost of a call beyond the runtime, in time, order and memory.
//!
//! The proxy is the release binary behind its socket. Runtime and hook servers are processes of
//! this program, so that none shares a thread with the measuring client. The proxy is compared with
//! a direct connection and koord-runtime-proxy, called alternately: targets are shares of their
//! figures, or differences to them. A relay that only copies bytes shows the cost of any process in
//! between on this machine.

mod calls;
mod client;
mod config;
mod hooks;
mod hostile;
mod info;
mod large;
mod load;
mod real;
mod records;
mod relay;
mod rig;
mod runtime;
mod server;
mod side;
mod unary;
mod upgrade;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand, ValueEnum};

use crate::{Arguments, report::Report};

/// Which parts of the proxy to measure; by default all.
#[derive(Args)]
pub(crate) struct Options {
    /// Measure this part only; may be given more than once
    #[arg(long, value_name = "TOPIC")]
    only: Vec<Topic>,
}

/// Parts that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Topic {
    /// Calls of the kubelet's client to containerd
    Real,
    /// Calls that are forwarded to a runtime that does almost nothing
    Carried,
    /// Calls with a hook
    Hooked,
    /// Large answers
    Large,
    /// A minute of load
    Load,
    /// Records of many containers
    Records,
    /// Changes of a hook server's file
    Configuration,
    /// The cost of attacks for other clients
    Hostile,
    /// Upgrades under load
    Upgrade,
}

impl Options {
    fn wants(&self, topic: Topic) -> bool {
        self.only.is_empty() || self.only.contains(&topic)
    }
}

/// Repetitions of each part.
struct Counts {
    rounds: usize,
    unary: usize,
    hooked: usize,
    /// Calls by the kubelet's client to containerd, for each connection.
    real: usize,
    large: usize,
    load: Duration,
    containers: [usize; 2],
    changes: usize,
    /// Divides the number of calls at a fixed rate.
    divisor: usize,
}

impl Counts {
    const FULL: Self = Self {
        rounds: 5,
        unary: 5000,
        hooked: 2000,
        real: 2000,
        large: 72,
        load: Duration::from_secs(60),
        containers: [500, 10_000],
        changes: 20,
        divisor: 1,
    };
    const QUICK: Self = Self {
        rounds: 1,
        unary: 500,
        hooked: 200,
        real: 200,
        large: 2,
        load: Duration::from_secs(3),
        containers: [50, 500],
        changes: 3,
        divisor: 10,
    };
}

/// Helper processes, which the bench starts.
#[derive(Subcommand)]
pub(crate) enum Part {
    /// A runtime that stores its objects
    Runtime {
        /// The socket to serve
        #[arg(long)]
        socket: PathBuf,
        /// How long an update takes
        #[arg(long, default_value_t = 0)]
        update_milliseconds: u64,
    },
    /// A relay that copies bytes without reading them
    Relay {
        /// The socket to serve
        #[arg(long)]
        socket: PathBuf,
        /// The socket that connections are relayed to
        #[arg(long)]
        to: PathBuf,
    },
    /// An attacking client. Prints `closed` if the server closed its connection
    Attacker {
        /// The socket to attack
        #[arg(long)]
        socket: PathBuf,
        /// The attack
        #[arg(long)]
        attack: hostile::Attack,
    },
    /// A hook server that changes nothing
    Hooks {
        /// The socket to serve
        #[arg(long)]
        socket: PathBuf,
    },
}

impl Part {
    /// Serves until it is killed, or attacks until the end.
    pub(crate) fn run(&self) -> ExitCode {
        let served = tokio().and_then(|tokio| match self {
            Self::Runtime { socket, update_milliseconds } => {
                tokio.block_on(runtime::serve(socket, Duration::from_millis(*update_milliseconds)))
            }
            Self::Relay { socket, to } => tokio.block_on(relay::serve(socket, to)),
            Self::Attacker { socket, attack } => {
                tokio.block_on(attack.run(socket));
                Ok(())
            }
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

/// Measures the proxy.
pub(crate) fn run(arguments: &Arguments, options: &Options, report: &mut Report) -> Result<()> {
    ensure!(
        arguments.binary.is_file(),
        "--binary {}: there is no such file",
        arguments.binary.display()
    );
    let counts = if arguments.quick { Counts::QUICK } else { Counts::FULL };
    tokio()?.block_on(measure(&arguments.binary, &counts, options, report))
}

async fn measure(
    binary: &Path,
    counts: &Counts,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    if options.wants(Topic::Real) {
        real::measure(binary, counts, report).await.context("calls to containerd")?;
    }
    if options.wants(Topic::Carried) {
        unary::measure_carried(binary, counts, report).await.context("calls that are passed on")?;
    }
    if options.wants(Topic::Hooked) {
        unary::measure_hooked(binary, counts, report).await.context("calls with a hook")?;
    }
    if options.wants(Topic::Large) {
        large::measure_decoded(binary, counts, report).await.context("large answers")?;
        large::measure_bytes(binary, counts, report).await.context("large answers, not decoded")?;
    }
    if options.wants(Topic::Load) {
        load::measure(binary, counts, report).await.context("load")?;
    }
    if options.wants(Topic::Records) {
        records::measure(binary, counts, report).await.context("records")?;
    }
    if options.wants(Topic::Configuration) {
        config::measure(binary, counts, report).await.context("configuration")?;
    }
    if options.wants(Topic::Hostile) {
        hostile::measure(binary, counts, report).await.context("attacks")?;
    }
    if options.wants(Topic::Upgrade) {
        upgrade::measure(binary, counts, report).await.context("upgrades")?;
    }
    Ok(())
}

/// One thread, like most peers of a proxy for one connection: waking another thread takes longer
/// than the work.
fn tokio() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
