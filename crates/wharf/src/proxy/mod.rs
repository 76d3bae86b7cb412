//! `wharf proxy`: between kubelet and container runtime.

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
use crate::running::{self, LogArgs, Threads};

/// Folder for the last good versions of hook server files, unless a flag says otherwise.
const STATE_DIR: &str = "/run/wharf/proxy";
/// Socket for questions to the proxy, unless a flag says otherwise.
const CONTROL: &str = "/run/wharf/proxy/control.sock";

/// Stands between kubelet and container runtime, and asks hook servers
///
/// Point the kubelet's --container-runtime-endpoint (or crictl's --runtime-endpoint) at the socket given by --listen.
/// Calls are passed on to the runtime byte for byte, of whatever CRI version, and so are the answers. Hook servers, one
/// file each in --hooks-dir, are asked before a pod or container is made, started or changed, and told after it was
/// stopped; what they change is all that changes. While the runtime is down calls are answered UNAVAILABLE; once it is
/// back they pass again. To back out, point the kubelet at the runtime's own socket.
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
        let code = running::run(Threads::One, |stop| plan.serve(stop));
        drop(guard);
        code
    }
}

/// Gives memory back after a burst of calls; of the program only once, when the start is over: what comes back after that is
/// what calls need, and they have no time to wait for it.
fn give_back() {
    static STARTED: Once = Once::new();
    if STARTED.is_completed() {
        return heap::trim();
    }
    STARTED.call_once(heap::trim_all);
}
