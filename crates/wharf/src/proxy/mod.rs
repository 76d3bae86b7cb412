//! `wharf proxy`: between kubelet and container runtime.

mod check;
pub(crate) mod koord;
mod run;

use std::{path::PathBuf, process::ExitCode, sync::Once, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use wharf_criproxy::{Conflict, ProxyOptions, Reading, Skip};
use wharf_facts::hook;
use wharf_mount::heap;
use wharf_uds::socket_of;

use self::{check::CheckConfig, run::Plan};
use crate::running::{self, LogArgs, Threads};

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
}

#[derive(Args)]
struct Serve {
    /// Socket to serve the runtime interface on, such as /run/wharf/cri.sock; its folder is made if it is not there
    #[arg(long, value_name = "SOCKET", required = true, value_parser = socket_of)]
    listen: Option<PathBuf>,
    /// Socket of the container runtime, such as /run/containerd/containerd.sock; it may appear later
    #[arg(long, value_name = "SOCKET", required = true, value_parser = socket_of)]
    runtime: Option<PathBuf>,
    /// Folder with a file for each hook server; made if it is not there
    #[arg(long, value_name = "DIR", default_value = hook::FOLDER)]
    hooks_dir: PathBuf,
    /// How long all hook servers together may take for one call, at most a fifth of the caller's own patience
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = hook_budget)]
    hook_budget: Duration,
    /// What happens to a server's change of a field that another has changed before
    #[arg(long, value_enum, default_value = "refuse")]
    on_conflict: OnConflict,
    /// Pods with this label or annotation, KEY=VALUE, are passed on without hooks
    #[arg(long, value_name = "KEY=VALUE", value_parser = skip, default_value_t = Skip::default())]
    skip: Skip,
    /// Take an oom_score_adj of 0 in a server's answer for a wish, as koord-runtime-proxy does, and not for unset
    #[arg(long)]
    zero_oom_score_adj: bool,
    /// How long to stay awake for the next step of a call before sleeping: less latency for some processor time while
    /// calls are made. 0s: not at all, as with a single processor
    #[arg(long, value_name = "DURATION", default_value = "400us", value_parser = busy_poll)]
    busy_poll: Duration,
    /// How long calls in flight, and the hooks that follow them, may take once the proxy is told to stop
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = running::duration)]
    drain: Duration,
    /// Serve /healthz, /readyz and /metrics at this address, such as 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    http_endpoint: Option<String>,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnConflict {
    /// The whole answer counts as failed, under its server's failure policy
    Refuse,
    /// The first change stays
    First,
    /// The last change wins
    Last,
}

impl Proxy {
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Some(Command::CheckConfig(check)) => check.run(),
            None => self.serve.run(),
        }
    }
}

impl Serve {
    fn run(self) -> ExitCode {
        let guard = self.log.init();
        let socket = |given: Option<PathBuf>| given.expect("required without a subcommand");
        let plan = Plan {
            listen: socket(self.listen),
            http: self.http_endpoint,
            drain: self.drain,
            options: ProxyOptions {
                runtime: socket(self.runtime),
                hooks: self.hooks_dir,
                budget: self.hook_budget,
                conflict: match self.on_conflict {
                    OnConflict::Refuse => Conflict::Refuse,
                    OnConflict::First => Conflict::First,
                    OnConflict::Last => Conflict::Last,
                },
                reading: Reading { zero_oom_score_adj: self.zero_oom_score_adj },
                skip: self.skip,
                busy_poll: self.busy_poll,
                at_rest: give_back,
            },
        };
        let code = running::run(Threads::One, |stop| plan.serve(stop));
        drop(guard);
        code
    }
}

fn hook_budget(text: &str) -> Result<Duration, String> {
    let given = running::duration(text)?;
    if given.is_zero() {
        return Err("with no time every hook would fail: expected a time such as 2s; to have no \
                    hooks, have no files in --hooks-dir"
            .to_owned());
    }
    Ok(given)
}

/// More than this would be a processor that does nothing else.
const LONGEST_BUSY_POLL: Duration = Duration::from_millis(10);

fn busy_poll(text: &str) -> Result<Duration, String> {
    let given = running::duration(text)?;
    if given > LONGEST_BUSY_POLL {
        return Err(format!(
            "must be at most {LONGEST_BUSY_POLL:?}, expected a time such as 400us"
        ));
    }
    Ok(given)
}

fn skip(text: &str) -> Result<Skip, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok(Skip { key: key.to_owned(), value: value.to_owned() })
        }
        _ => Err("expected KEY=VALUE".to_owned()),
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
