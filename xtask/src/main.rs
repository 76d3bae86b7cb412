//! Tasks of the project, run as `cargo xtask NAME`. CI runs `cargo xtask test` and nothing else.
#![allow(clippy::print_stdout, reason = "tasks print to the terminal")]

mod bench;
mod e2e;
mod fresh;
mod fuzz;
mod go;
mod packages;
mod peers;
mod shell;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of the project")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check and test, and print a summary
    Test(test::Options),
    /// Run the steps of the README and the docs as a new user: a clone, empty home folders, nothing
    /// built
    Fresh(fresh::Options),
    /// Build the real peers that tests run against into the cache, once
    Peers {
        /// Folders of peers/; all of them by default
        names: Vec<String>,
    },
    /// Measure wharf against the programs that it replaces
    Bench(bench::Options),
    /// Fuzz the parsers of untrusted input, with a nightly compiler and cargo-fuzz
    Fuzz(fuzz::Options),
    /// Kill a program at random moments, and look for lost or leaked objects
    Soak(soak::Options),
    /// Run Kubernetes' storage suite against wharf on a test cluster
    E2e(e2e::Options),
    /// Check rules of this repository: crate levels, paths in documents, dialect, house rules
    Tidy,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Test(options) => Ok(test::run(&options)),
        Task::Fresh(options) => fresh::run(&options),
        Task::Peers { names } => {
            packages::install().and_then(|()| peers::build(&names)).map(|()| ExitCode::SUCCESS)
        }
        Task::Bench(options) => bench::run(&options),
        Task::Fuzz(options) => fuzz::run(&options).map(|()| ExitCode::SUCCESS),
        Task::Soak(options) => soak::run(&options).map(|()| ExitCode::SUCCESS),
        Task::E2e(options) => e2e::run(&options),
        Task::Tidy => tidy::run().map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
