//! `wharf proxy`: the CRI proxy between kubelet and container runtime.

mod check;
mod control;
mod explain;
mod format;
mod inherited;
pub(crate) mod koord;
mod notify;
mod run;
mod service;
mod settings;
mod sockets;
mod succession;
mod successor;
mod tap;

use std::{process::ExitCode, sync::Once};

use clap::{Args, Subcommand};
use wharf_mount::heap;

use self::{
    check::CheckConfig,
    control::{Forget, Status, Upgrade},
    explain::Explain,
    settings::Settings,
    successor::StartSuccessor,
    tap::Tap,
};
use crate::runtime::{self, LogArgs, Threads};

/// Default of the folder for the last good versions of hook server files.
const STATE_DIR: &str = "/run/wharf/proxy";
/// Default of the control socket.
const CONTROL: &str = "/run/wharf/proxy/control.sock";

/// Runs the CRI proxy between kubelet and container runtime, which calls hook servers
///
/// Point the kubelet's --container-runtime-endpoint (or crictl's --runtime-endpoint) at the socket
/// given by --listen. The proxy relays calls and answers of every CRI version byte for byte. It
/// calls hook servers, one file each in --hooks-dir, before a pod or container is created, started
/// or changed and after it has stopped, and applies only their changes. While the runtime is down,
/// the proxy answers calls with UNAVAILABLE. To stop using the proxy, point the kubelet at the
/// runtime's own socket.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Proxy {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand)]
enum Command {
    CheckConfig(CheckConfig),
    Status(Status),
    Explain(Explain),
    Tap(Tap),
    Forget(Forget),
    Upgrade(Upgrade),
    #[command(hide = true)]
    StartSuccessor(StartSuccessor),
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    log: LogArgs,
}

impl Proxy {
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Some(command) => command.run(),
            None => self.serve.run(),
        }
    }
}

impl Command {
    fn run(self) -> ExitCode {
        match self {
            Self::CheckConfig(check) => check.run(),
            Self::Status(status) => status.run(),
            Self::Explain(explain) => explain.run(),
            Self::Tap(tap) => tap.run(),
            Self::Forget(forget) => forget.run(),
            Self::Upgrade(upgrade) => upgrade.run(),
            Self::StartSuccessor(start) => start.run(),
        }
    }
}

impl Serve {
    fn run(self) -> ExitCode {
        let guard = self.log.init();
        let plan = self.settings.plan();
        let code = runtime::run(Threads::One, |stop| plan.serve(stop));
        drop(guard);
        code
    }
}

/// Returns free memory to the kernel after a burst of calls. Pages of the program are returned only
/// once, after the start: the pages that calls read back later are needed, and calls must not wait
/// for them again.
fn give_back() {
    static STARTED: Once = Once::new();
    if STARTED.is_completed() {
        return heap::trim();
    }
    STARTED.call_once(heap::trim_all);
}
