//! The CSI sidecars under the names and with the flags of the Go programs that they replace.
//!
//! Each personality declares its own flags in addition to the shared ones ([`flags`]), and provides
//! a controller. The rest is shared: [`runner`] reads the command line, serves metrics and health
//! and waits for the driver; [`supervisor`] takes part in elections and runs controllers while they
//! lead and the driver stays the same. [`mod@combined`] runs any set of them in one process.

mod attacher;
mod combined;
mod controller;
mod driver;
mod election;
mod flags;
mod groups;
mod leading;
mod node;
mod process_health;
mod provisioner;
mod resizer;
mod runner;
mod settle;
mod snapshot_controller;
mod snapshotter;
mod supervisor;

use std::process::ExitCode;

use self::{
    attacher::Flags as Attacher, provisioner::Flags as Provisioner, resizer::Flags as Resizer,
    snapshot_controller::Flags as SnapshotController, snapshotter::Flags as Snapshotter,
};

pub(crate) fn attacher(name: &str, args: Vec<String>) -> ExitCode {
    runner::main::<Attacher>(name, args)
}

pub(crate) fn provisioner(name: &str, args: Vec<String>) -> ExitCode {
    runner::main::<Provisioner>(name, args)
}

pub(crate) fn resizer(name: &str, args: Vec<String>) -> ExitCode {
    runner::main::<Resizer>(name, args)
}

pub(crate) fn snapshotter(name: &str, args: Vec<String>) -> ExitCode {
    runner::main::<Snapshotter>(name, args)
}

pub(crate) fn snapshot_controller(name: &str, args: Vec<String>) -> ExitCode {
    runner::main::<SnapshotController>(name, args)
}

/// Runs several sidecars in one process, or the subcommand `settle`.
pub(crate) fn combined(name: &str, args: Vec<String>) -> ExitCode {
    match args.split_first() {
        Some((command, args)) if command == "settle" => settle::main(name, args),
        _ => combined::main(name, args),
    }
}
