//! The flags of `wharf proxy`, which it also takes under the name of koord-runtime-proxy.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use wharf_criproxy::{Conflict, ProxyOptions, Reading, Skip};
use wharf_facts::hook;
use wharf_uds::socket_of;

use super::{STATE_DIR, give_back, run::Plan};
use crate::running;

/// The time of all hook servers of a call, as the default of --hook-budget says.
pub(super) const HOOK_BUDGET: Duration = Duration::from_secs(2);
/// The time to stay awake, as the default of --busy-poll says: what it saves the kubelet's calls to a real runtime it takes from
/// the processors that they run on.
pub(super) const BUSY_POLL: Duration = Duration::ZERO;
/// The control socket in the state folder.
const CONTROL_NAME: &str = "control.sock";

#[derive(Args)]
pub(super) struct Settings {
    /// Socket to serve the runtime interface on, such as /run/wharf/cri.sock; its folder is made if it is not there
    #[arg(long, value_name = "SOCKET", required = true, value_parser = socket_of)]
    pub(super) listen: Option<PathBuf>,
    /// Socket of the container runtime, such as /run/containerd/containerd.sock; it may appear later
    #[arg(long, value_name = "SOCKET", required = true, value_parser = socket_of)]
    pub(super) runtime: Option<PathBuf>,
    /// Folder with a file for each hook server; made if it is not there
    #[arg(long, value_name = "DIR", default_value = hook::FOLDER)]
    pub(super) hooks_dir: PathBuf,
    /// Hook server whose file must be there, by the file's name without .json; calls that it hooks are refused while
    /// there is none. May be given more than once
    #[arg(long, value_name = "NAME")]
    pub(super) require_server: Vec<String>,
    /// Folder that keeps the last good version of each hook server file over restarts; made if it is not there
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(super) state_dir: PathBuf,
    /// Socket that `wharf proxy status`, `explain`, `tap`, `forget` and `upgrade` ask; control.sock in --state-dir unless set
    #[arg(long, value_name = "SOCKET", value_parser = socket_of)]
    pub(super) control: Option<PathBuf>,
    /// Take the sockets and the calls over from the proxy that answers at --control, if one does. It finishes the calls that
    /// it has begun, and ends
    #[arg(long)]
    pub(super) take_over: bool,
    /// How long all hook servers together may take for one call, at most a fifth of the caller's own patience
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = hook_budget)]
    pub(super) hook_budget: Duration,
    /// What happens to a server's change of a field that another has changed before
    #[arg(long, value_enum, default_value = "refuse")]
    pub(super) on_conflict: OnConflict,
    /// Label of pods that are passed on without hooks
    #[arg(long, value_name = "KEY=VALUE", default_value_t = Skip::default())]
    pub(super) skip: Skip,
    /// Ask hook servers about every pod, whatever its labels
    #[arg(long, conflicts_with_all = ["skip", "skip_annotations", "skip_namespace"])]
    pub(super) no_skip: bool,
    /// Also pass pods on without hooks that have the key and value of --skip as an annotation
    #[arg(long)]
    pub(super) skip_annotations: bool,
    /// Namespace whose pods may be passed on without hooks; those of any namespace unless set. May be given more than once
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) skip_namespace: Vec<String>,
    /// Take an oom_score_adj of 0 in a server's answer for a wish, as koord-runtime-proxy does, and not for unset
    #[arg(long)]
    pub(super) zero_oom_score_adj: bool,
    /// How long to look for the next step of a call before sleeping, such as 400us: on a machine with idle processors calls
    /// come through sooner, for up to that much processor time a step. Not with a single processor
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = busy_poll)]
    pub(super) busy_poll: Duration,
    /// How long calls in flight, and the hooks that follow them, may take once the proxy is told to stop
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = running::duration)]
    pub(super) drain: Duration,
    /// Serve /healthz, /readyz and /metrics at this address, such as 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    pub(super) http_endpoint: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum OnConflict {
    /// The whole answer counts as failed, under its server's failure policy
    Refuse,
    /// The first change stays
    First,
    /// The last change wins
    Last,
}

impl Settings {
    /// What these flags ask for.
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
    check_hook_budget(running::duration(text)?)
}

/// Refuses a budget with which nothing works.
pub(super) fn check_hook_budget(given: Duration) -> Result<Duration, String> {
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
    check_busy_poll(running::duration(text)?)
}

/// Refuses a time for which the processor would do nothing else.
pub(super) fn check_busy_poll(given: Duration) -> Result<Duration, String> {
    if given > LONGEST_BUSY_POLL {
        return Err(format!(
            "must be at most {LONGEST_BUSY_POLL:?}, expected a time such as 400us"
        ));
    }
    Ok(given)
}
