//! Tasks of the project, run as `cargo xtask NAME`. CI runs `cargo xtask test` and nothing else.
#![allow(clippy::print_stdout, reason = "a task talks to the person who started it")]

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
    /// Check and test everything, and say how many passed
    Test(test::Options),
    /// Try the README and the docs as a new user: a clone, empty home folders, nothing built
    Fresh(fresh::Options),
    /// Build the real peers that tests run against, once, into the cache
    Peers {
        /// Folders of peers/; all of them unless named
        names: Vec<String>,
    },
    /// Measure wharf, beside what it replaces where that is given
    Bench(bench::Options),
    /// Feed random input to what reads bytes of strangers, with a nightly compiler and cargo-fuzz
    Fuzz(fuzz::Options),
    /// Kill a program at random moments for a long time, and look for what that leaves or loses
    Soak(soak::Options),
    /// Run Kubernetes' own storage suite against wharf on a cluster of the bench
    E2e(e2e::Options),
    /// Check rules that no compiler knows: levels of crates, paths in documents, house rules
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
