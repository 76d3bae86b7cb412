//! Measurements with targets. `cargo xtask bench NAME` builds what is measured, static as it ships, and runs this in
//! release mode. Every figure is printed beside its target; a missed one makes the exit code 1.

#![allow(clippy::print_stdout)]

mod build;
mod driver;
mod proxy;
mod registration;
mod report;
mod sample;
mod sidecars;
mod usage;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use self::report::Report;

/// What to measure, and against what.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
    /// The wharf binary that is measured
    #[arg(long, value_name = "FILE", global = true, default_value = "wharf")]
    binary: PathBuf,
    /// A folder with the binaries to compare with, under their usual names
    #[arg(long, value_name = "DIR", global = true)]
    peers: Option<PathBuf>,
    /// Few repetitions: shows that the bench works, the figures are worth little
    #[arg(long, global = true)]
    quick: bool,
}

/// Every measurement there is.
#[derive(Subcommand)]
enum Bench {
    /// The first build of the README's first command
    Build,
    /// The local-storage driver beside the disk that it works on
    Driver(driver::Options),
    /// The runtime proxy beside the way without one, and beside koord-runtime-proxy
    Proxy(proxy::Options),
    /// A process that the measurement of the proxy needs around it
    #[command(subcommand, hide = true)]
    ProxyPart(proxy::Part),
    /// The plugin manager beside a real kubelet, and the registrar
    Registration,
    /// The CSI sidecars in one process beside a bare client, and beside the Go sidecars
    Sidecars(sidecars::Options),
    /// A process that the measurement of the sidecars needs around it
    #[command(subcommand, hide = true)]
    SidecarsPart(sidecars::Part),
}

type Run<'a> = Box<dyn FnOnce(&mut Report) -> anyhow::Result<()> + 'a>;

fn main() -> ExitCode {
    if let Some(command) = build::wrapped() {
        return build::rustc(&command);
    }
    let arguments = &Arguments::parse();
    let (name, run): (_, Run<'_>) = match &arguments.bench {
        Bench::Build => ("build", Box::new(|report| build::run(arguments, report))),
        Bench::Driver(options) => {
            ("driver", Box::new(|report| driver::run(arguments, options, report)))
        }
        Bench::Proxy(options) => {
            ("proxy", Box::new(|report| proxy::run(arguments, options, report)))
        }
        Bench::ProxyPart(part) => return part.run(),
        Bench::Registration => {
            ("registration", Box::new(|report| registration::run(arguments, report)))
        }
        Bench::Sidecars(options) => {
            ("sidecars", Box::new(|report| sidecars::run(arguments, options, report)))
        }
        Bench::SidecarsPart(part) => return part.run(),
    };
    let mut report = Report::start(name);
    match run(&mut report) {
        Ok(()) => report.close(),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
