//! `wharf plugins`: lists, watches or manages the plugins of a node.

mod ls;
mod run;
mod table;
mod watch;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand, ValueEnum};

/// Commands for the plugins of a node.
#[derive(Subcommand)]
pub(crate) enum Plugins {
    /// Lists the plugins in a plugins_registry folder, with the answer of each
    Ls(ls::Ls),
    /// Shows the plugins in a plugins_registry folder, and updates when they change
    Watch(watch::Watch),
    /// Runs the plugin manager on a folder: discovers, validates, registers and deregisters plugins
    Run(Box<run::Run>),
}

impl Plugins {
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Ls(command) => command.run(),
            Self::Watch(command) => command.run(),
            Self::Run(command) => command.run(),
        }
    }
}

/// The folder of registration sockets.
#[derive(Args)]
struct Folder {
    /// The plugins_registry folder
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/plugins_registry")]
    root: PathBuf,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for people
    Table,
    /// JSON for programs
    Json,
}
