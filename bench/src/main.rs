//! Measurements with targets. `cargo xtask bench NAME` builds the measured binary, static like the
//! one that ships, and runs this program in release mode. Every figure is printed next to its
//! target; a missed target makes the exit code 1.

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

/// The measurement and the programs to compare with.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
    /// The wharf binary to measure
    #[arg(long, value_name = "FILE", global = true, default_value = "wharf")]
    binary: PathBuf,
    /// A folder with the binaries to compare with, under their usual names
    #[arg(long, value_name = "DIR", global = true)]
    peers: Option<PathBuf>,
    /// Few repetitions: to try the bench, not for its figures
    #[arg(long, global = true)]
    quick: bool,
}

/// The measurements.
#[derive(Subcommand)]
enum Bench {
    /// The first build of the README's first command
    Build,
    /// The local-storage driver, compared with its disk
    Driver(driver::Options),
    /// The runtime proxy, compared with a direct connection and with koord-runtime-proxy
    Proxy(proxy::Options),
    /// A helper process of the proxy's measurement
    #[command(subcommand, hide = true)]
    ProxyPart(proxy::Part),
    /// The plugin manager, compared with a real kubelet, and the registrar
    Registration,
    /// The CSI sidecars in one process, compared with a bare client and with the Go sidecars
    Sidecars(sidecars::Options),
    /// A helper process of the sidecars' measurement
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
