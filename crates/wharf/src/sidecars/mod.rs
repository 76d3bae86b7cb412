//! The CSI sidecars under the names and with the flags of the Go programs that they replace.
//!
//! Each personality declares its own flags beside those that several have ([`flags`]), and gives the controller that does
//! its work. The rest is shared: [`shell`] reads the command line, serves metrics and health and waits for the driver,
//! [`shift`] stands for election and runs controllers for as long as they lead and the driver stays what it was.
//! [`mod@joint`] runs any set of them in one process.

mod attacher;
mod controller;
mod driver;
mod election;
mod eyes;
mod flags;
mod groups;
mod joint;
mod leading;
mod node;
mod provisioner;
mod resizer;
mod settle;
mod shell;
mod shift;
mod snapshot_controller;
mod snapshotter;

use std::process::ExitCode;

use self::{
    attacher::Flags as Attacher, provisioner::Flags as Provisioner, resizer::Flags as Resizer,
    snapshot_controller::Flags as SnapshotController, snapshotter::Flags as Snapshotter,
};

pub(crate) fn attacher(name: &str, args: Vec<String>) -> ExitCode {
    shell::main::<Attacher>(name, args)
}

pub(crate) fn provisioner(name: &str, args: Vec<String>) -> ExitCode {
    shell::main::<Provisioner>(name, args)
}

pub(crate) fn resizer(name: &str, args: Vec<String>) -> ExitCode {
    shell::main::<Resizer>(name, args)
}

pub(crate) fn snapshotter(name: &str, args: Vec<String>) -> ExitCode {
    shell::main::<Snapshotter>(name, args)
}

pub(crate) fn snapshot_controller(name: &str, args: Vec<String>) -> ExitCode {
    shell::main::<SnapshotController>(name, args)
}

/// Several in one process, or a command about what they left.
pub(crate) fn joint(name: &str, args: Vec<String>) -> ExitCode {
    match args.split_first() {
        Some((command, args)) if command == "settle" => settle::main(name, args),
        _ => joint::main(name, args),
    }
}
