//! `wharf hooks`: hook servers for the CRI proxy.

mod log;
mod rules;
mod serving;

use std::process::ExitCode;

use clap::Subcommand;

/// The hook server to run.
#[derive(Subcommand)]
pub(crate) enum Hooks {
    Static(rules::Static),
    Log(log::Log),
}

impl Hooks {
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Static(command) => command.run(),
            Self::Log(command) => command.run(),
        }
    }
}
