//! The flags of `wharf proxy`. Under the name koord-runtime-proxy it takes them as well.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use wharf_criproxy::{Conflict, ProxyOptions, Reading, Skip};
use wharf_facts::hook;
use wharf_uds::socket_of;

use super::{STATE_DIR, give_back, run::Plan};
use crate::runtime;

/// Default of --hook-budget.
pub(super) const HOOK_BUDGET: Duration = Duration::from_secs(2);
/// Default of --busy-poll: off, because polling takes processor time from the runtime.
pub(super) const BUSY_POLL: Duration = Duration::ZERO;
/// The control socket in the state folder.
const CONTROL_NAME: &str = "control.sock";

#[derive(Args)]
pub(super) struct Settings {
    /// Socket to serve the CRI on, such as /run/wharf/cri.sock; its folder is created if it is
    /// missing
    #[arg(long, value_name = "SOCKET", required = true, value_parser = socket_of)]
    pub(super) listen: Option<PathBuf>,
    /// Socket of the container runtime, such as /run/containerd/containerd.sock; it may appear
    /// later
    #[arg(long, value_name = "SOCKET", required = true, value_parser = socket_of)]
    pub(super) runtime: Option<PathBuf>,
    /// Folder with a file for each hook server; created if it is missing
    #[arg(long, value_name = "DIR", default_value = hook::FOLDER)]
    pub(super) hooks_dir: PathBuf,
    /// Name of a required hook server: its file's name without .json. Calls that it hooks are
    /// refused while the file is missing. May be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) require_server: Vec<String>,
    /// Folder for the last good version of each hook server file, kept over restarts; created if it
    /// is missing
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(super) state_dir: PathBuf,
    /// Control socket, for `wharf proxy status`, `explain`, `tap`, `forget` and `upgrade`. Default:
    /// control.sock in --state-dir
    #[arg(long, value_name = "SOCKET", value_parser = socket_of)]
    pub(super) control: Option<PathBuf>,
    /// Take over sockets and new calls from the proxy that answers at --control, if one does. That
    /// proxy finishes its calls in flight and exits
    #[arg(long)]
    pub(super) take_over: bool,
    /// Time limit of all hook servers together for one call, at most a fifth of the caller's
    /// timeout
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = hook_budget)]
    pub(super) hook_budget: Duration,
    /// Effect of a server's change to a field that another server has changed before
    #[arg(long, value_enum, default_value = "refuse")]
    pub(super) on_conflict: OnConflict,
    /// Label of pods whose calls pass without hooks
    #[arg(long, value_name = "KEY=VALUE", default_value_t = Skip::default())]
    pub(super) skip: Skip,
    /// Call hook servers for every pod, whatever its labels
    #[arg(long, conflicts_with_all = ["skip", "skip_annotations", "skip_namespace"])]
    pub(super) no_skip: bool,
    /// Skip hooks also for pods that have the key and value of --skip as an annotation
    #[arg(long)]
    pub(super) skip_annotations: bool,
    /// Namespace whose pods may skip hooks. Default: all namespaces. May be repeated
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) skip_namespace: Vec<String>,
    /// Apply an oom_score_adj of 0 in a server's answer, as koord-runtime-proxy does, instead of
    /// taking 0 for unset
    #[arg(long)]
    pub(super) zero_oom_score_adj: bool,
    /// Time for which the proxy polls for the next step of a call before it sleeps, such as 400us.
    /// With idle processors calls pass sooner, at the cost of up to this processor time for each
    /// step. Not possible with a single processor
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = busy_poll)]
    pub(super) busy_poll: Duration,
    /// Time that calls in flight, and the hooks after them, have to finish when the proxy stops
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = runtime::duration)]
    pub(super) drain: Duration,
    /// Serve /healthz, /readyz and /metrics at this address, such as 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    pub(super) http_endpoint: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum OnConflict {
    /// Treat the whole answer as failed, under the failure policy of its server
    Refuse,
    /// Keep the first change
    First,
    /// Apply the last change
    Last,
}

impl Settings {
    /// The proxy that these flags ask for.
    pub(super) fn plan(self) -> Plan {
        let socket = |given: Option<PathBuf>| given.expect("required without a subcommand");
        Plan {
            listen: socket(self.listen),
            control: self.control.unwrap_or_else(|| self.state_dir.join(CONTROL_NAME)),
            http: self.http_endpoint,
            take_over: self.take_over,
            drain: self.drain,
            options: ProxyOptions {
                runtime: socket(self.runtime),
                hooks: self.hooks_dir,
                state_dir: Some(self.state_dir),
                required: self.require_server.into_iter().collect(),
                budget: self.hook_budget,
                conflict: match self.on_conflict {
                    OnConflict::Refuse => Conflict::Refuse,
                    OnConflict::First => Conflict::First,
                    OnConflict::Last => Conflict::Last,
                },
                reading: Reading { zero_oom_score_adj: self.zero_oom_score_adj },
                skip: (!self.no_skip).then(|| Skip {
                    by_annotation: self.skip_annotations,
                    namespaces: self.skip_namespace.into_iter().collect(),
                    ..self.skip
                }),
                busy_poll: self.busy_poll,
                at_rest: give_back,
                state_is_kept_elsewhere: false,
            },
        }
    }
}

fn hook_budget(text: &str) -> Result<Duration, String> {
    check_hook_budget(runtime::duration(text)?)
}

/// Refuses a budget of 0, with which every hook would fail.
pub(super) fn check_hook_budget(given: Duration) -> Result<Duration, String> {
    if given.is_zero() {
        return Err("with no time every hook would fail: expected a time such as 2s; to have no \
                    hooks, have no files in --hooks-dir"
            .to_owned());
    }
    Ok(given)
}

/// The longest --busy-poll: beyond it a processor would do nothing else.
const LONGEST_BUSY_POLL: Duration = Duration::from_millis(10);

fn busy_poll(text: &str) -> Result<Duration, String> {
    check_busy_poll(runtime::duration(text)?)
}

/// Refuses a time over [`LONGEST_BUSY_POLL`].
pub(super) fn check_busy_poll(given: Duration) -> Result<Duration, String> {
    if given > LONGEST_BUSY_POLL {
        return Err(format!(
            "must be at most {LONGEST_BUSY_POLL:?}, expected a time such as 400us"
        ));
    }
    Ok(given)
}
