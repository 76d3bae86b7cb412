//! `wharf csi`: calls any CSI driver from the command line, to debug it.
//!
//! A command is a struct with its flags and a `run` that checks the capabilities it needs, makes
//! its calls and returns a [`Report`]. The commands share [`flags`] (how to reach the driver),
//! [`session`] (how to call it), [`report`] (how to show an answer) and [`failure`] (exit codes).

mod access;
mod attach;
mod document;
mod failure;
mod flags;
mod group;
mod health;
mod identity;
mod need;
mod node;
mod paging;
mod pair;
mod report;
mod resize;
mod secrets;
mod session;
mod snapshot;
mod stats;
mod volume;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::{failure::Failure, flags::Flags, report::Report, session::Session};
use crate::runtime::{self, Threads};

/// Calls any CSI driver from the command line: one command is one call
///
/// The help of each command names its RPC. Before a call that needs a capability, the command
/// checks that the driver advertises it. Exit codes: 0 done, 1 the driver refused or lacks a
/// capability, 2 a mistake on the command line, 3 the driver is not reachable.
#[derive(Args)]
#[command(
    after_help = "Example:\n  export CSI_ENDPOINT=unix:///csi/csi.sock\n  wharf csi info\n  \
                        wharf csi create data --size 1Gi\n  wharf csi ls -o json"
)]
pub(crate) struct Csi {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Info(identity::Info),
    Caps(identity::Caps),
    Capacity(volume::Capacity),
    Create(volume::Create),
    Ls(volume::Ls),
    Get(volume::Get),
    Rm(volume::Rm),
    Validate(volume::Validate),
    Publish(attach::Publish),
    Unpublish(attach::Unpublish),
    Stage(node::Stage),
    Unstage(node::Unstage),
    Mount(node::Mount),
    Umount(node::Umount),
    Stats(stats::Stats),
    Expand(resize::Expand),
    Grow(resize::Grow),
    Modify(resize::Modify),
    /// Creates, lists, shows and deletes snapshots
    #[command(subcommand)]
    Snap(snapshot::Snap),
    /// Creates, shows and deletes snapshots of several volumes at one moment
    #[command(subcommand)]
    Group(group::Group),
    Health(health::Health),
}

impl Csi {
    pub(crate) fn run(self) -> ExitCode {
        let _guard = match self.flags.log() {
            Ok(guard) => guard,
            Err(failure) => return failure.print(),
        };
        let (session, output) = match self.flags.open() {
            Ok(opened) => opened,
            Err(failure) => return failure.print(),
        };
        runtime::run(Threads::One, |stop| async move {
            let outcome = stop.run_until_cancelled(self.verb.run(&session)).await;
            let code = match outcome {
                Some(Ok(report)) => report.write(output, &session.secrets),
                Some(Err(failure)) => Err(failure.without(&session.secrets)),
                None => Err(Failure::Interrupted),
            };
            Ok(code.unwrap_or_else(|failure| failure.print()))
        })
    }
}

impl Verb {
    async fn run(self, session: &Session) -> Result<Report, Failure> {
        match self {
            Self::Info(command) => command.run(session).await,
            Self::Caps(command) => command.run(session).await,
            Self::Capacity(command) => command.run(session).await,
            Self::Create(command) => command.run(session).await,
            Self::Ls(command) => command.run(session).await,
            Self::Get(command) => command.run(session).await,
            Self::Rm(command) => command.run(session).await,
            Self::Validate(command) => command.run(session).await,
            Self::Publish(command) => command.run(session).await,
            Self::Unpublish(command) => command.run(session).await,
            Self::Stage(command) => command.run(session).await,
            Self::Unstage(command) => command.run(session).await,
            Self::Mount(command) => command.run(session).await,
            Self::Umount(command) => command.run(session).await,
            Self::Stats(command) => command.run(session).await,
            Self::Expand(command) => command.run(session).await,
            Self::Grow(command) => command.run(session).await,
            Self::Modify(command) => command.run(session).await,
            Self::Snap(command) => command.run(session).await,
            Self::Group(command) => command.run(session).await,
            Self::Health(command) => command.run(session).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        csi: super::Csi,
    }

    /// The commands that make calls, with their path.
    fn leaves(path: &str, command: &clap::Command) -> Vec<(String, clap::Command)> {
        let mut found = Vec::new();
        for inner in command.get_subcommands() {
            let path = format!("{path} {}", inner.get_name());
            match inner.has_subcommands() {
                true => found.extend(leaves(&path, inner)),
                false => found.push((path, inner.clone())),
            }
        }
        found
    }

    #[test]
    fn every_help_names_its_rpc_and_has_an_example() {
        let program = Program::command();
        program.clone().debug_assert();
        let leaves = leaves("wharf csi", &program);
        assert_eq!(leaves.len(), 26);
        for (path, command) in leaves {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.contains('(') && about.ends_with(')'), "{path}: {about:?} names no RPC");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains(&format!("\n  {path}")), "{path}: {after:?} is no example");
        }
    }
}
