//! `wharf demo`: the lives of a plugin and of a volume on one machine, over real sockets and
//! mounts.
//!
//! A plugin manager runs in this process. First a small CSI driver and the registrar run as child
//! processes of this binary, so that the demo can kill them. Then the local-storage driver is
//! registered and called as Kubernetes calls it; that part needs root.

mod calls;
mod children;
mod driver;
mod local;
mod node;
mod registration;
mod scene;
mod screen;
mod story;
mod traces;
mod volume;

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use wharf_cli::LogOptions;

use crate::runtime::{Threads, run};

/// Shows the lives of a plugin and of a volume, from beginning to end
///
/// A CSI driver is seen, validated, registered, killed, deregistered and comes back. Then, as root,
/// a volume of the local-storage driver is created, mounted, written, snapshot, restored, verified,
/// grown and deleted. Everything happens in a temporary folder, which is removed at the end. Exits
/// with 0 if all steps succeed.
#[derive(Args)]
pub(crate) struct Demo {
    /// Also print the logs of the driver, the registrar and the plugin manager
    #[arg(short, long)]
    verbose: bool,
    /// Run as the demo's CSI driver, on this socket
    #[arg(long, hide = true, value_name = "SOCKET")]
    driver: Option<PathBuf>,
}

impl Demo {
    pub(crate) fn run(self) -> ExitCode {
        let _guard = self.verbose.then(|| LogOptions::default().init());
        match self.driver {
            Some(socket) => run(Threads::One, |stop| driver::serve(socket, stop)),
            None => run(Threads::Cores, |stop| story::run(self.verbose, stop)),
        }
    }
}
