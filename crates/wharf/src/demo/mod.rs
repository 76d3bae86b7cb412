//! `wharf demo`: a plugin's life on one machine, over real sockets and real processes.
//!
//! A plugin manager runs in this process. A small CSI driver and the registrar run as processes of their own, started
//! from this very binary, so that killing them is killing.

mod children;
mod driver;
mod screen;
mod story;

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use wharf_cli::LogOptions;

use crate::running::{Threads, run};

/// Shows plugin registration from beginning to end: a CSI driver is seen, validated, registered, killed, deregistered
/// and comes back. Everything happens in a temporary folder, and nothing is left of it. Exits with 0 if all went well.
#[derive(Args)]
pub(crate) struct Demo {
    /// Also print the log of every part
    #[arg(short, long)]
    verbose: bool,
    /// Be the demo's CSI driver, on this socket
    #[arg(long, hide = true, value_name = "SOCKET")]
    driver: Option<PathBuf>,
}

impl Demo {
    pub(crate) fn run(self) -> ExitCode {
        let _guard = self.verbose.then(|| LogOptions::default().init());
        match self.driver {
            Some(socket) => run(Threads::One, |stop| driver::serve(socket, stop)),
            None => run(Threads::Cores, |stop| story::tell(self.verbose, stop)),
        }
    }
}
