//! `wharf proxy` under the name koord-runtime-proxy, with the flags of both programs.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};
use tracing::warn;
use wharf_cli::{Dialect, Flag, FlagError, FlagSet, LoggingFlags, Parsed};
use wharf_criproxy::Skip;
use wharf_facts::hook;
use wharf_uds::socket_of;

use super::{
    Command, STATE_DIR,
    run::DRAIN,
    settings::{BUSY_POLL, HOOK_BUDGET, OnConflict, Settings, check_busy_poll, check_hook_budget},
};
use crate::runtime::{Threads, run, usage};

/// The flags of koord-runtime-proxy.
struct UpstreamFlags {
    listen: Flag<String>,
    runtime: Flag<String>,
    image: Flag<String>,
    mode: Flag<String>,
    skip_key: Flag<String>,
    skip_value: Flag<String>,
}

/// The flags of `wharf proxy`.
struct OwnFlags {
    listen: Flag<String>,
    runtime: Flag<String>,
    hooks_dir: Flag<String>,
    require_server: Flag<Vec<String>>,
    state_dir: Flag<String>,
    control: Flag<String>,
    take_over: Flag<bool>,
    hook_budget: Flag<Duration>,
    on_conflict: Flag<String>,
    skip: Flag<String>,
    no_skip: Flag<bool>,
    skip_annotations: Flag<bool>,
    skip_namespace: Flag<Vec<String>>,
    zero_oom_score_adj: Flag<bool>,
    busy_poll: Flag<Duration>,
    drain: Flag<Duration>,
    http_endpoint: Flag<String>,
}

impl UpstreamFlags {
    fn register(set: &mut FlagSet) -> Self {
        let skip = Skip::default();
        Self {
            listen: set.string(
                "koord-runtimeproxy-endpoint",
                "/var/run/koord-runtimeproxy/runtimeproxy.sock",
                "Socket to serve the runtime interface on.",
            ),
            runtime: set.string(
                "remote-runtime-service-endpoint",
                "/var/run/containerd/containerd.sock",
                "Socket of the container runtime.",
            ),
            image: set.string(
                "remote-image-service-endpoint",
                "",
                "Ignored: image calls go to the runtime's socket.",
            ),
            mode: set.string(
                "backend-runtime-mode",
                "Containerd",
                "Mode of the runtime: Containerd. For Docker, run the proxy in front of cri-dockerd.",
            ),
            skip_key: set.string(
                "runtime-hook-server-key",
                skip.key,
                "Label key of pods whose calls pass without hooks.",
            ),
            skip_value: set.string(
                "runtime-hook-server-val",
                skip.value,
                "Label value of pods whose calls pass without hooks.",
            ),
        }
    }

    fn check_mode(&self, parsed: &Parsed) -> Result<(), FlagError> {
        match parsed.get(&self.mode).as_str() {
            "Containerd" => Ok(()),
            "Docker" => Err(parsed.usage_error(
                "--backend-runtime-mode=Docker is not served: run cri-dockerd, and give its socket \
                 as --remote-runtime-service-endpoint with --backend-runtime-mode=Containerd",
            )),
            other => Err(parsed.usage_error(format_args!(
                "--backend-runtime-mode: unknown mode {other:?}, expected Containerd"
            ))),
        }
    }
}

impl OwnFlags {
    fn register(set: &mut FlagSet) -> Self {
        Self {
            listen: set.string("listen", "", "The same as --koord-runtimeproxy-endpoint."),
            runtime: set.string("runtime", "", "The same as --remote-runtime-service-endpoint."),
            hooks_dir: set.string(
                "hooks-dir",
                hook::FOLDER,
                "Folder with a file for each hook server.",
            ),
            require_server: set.string_list(
                "require-server",
                Vec::new(),
                "Name of a required hook server: its file's name without .json. Calls that it hooks are refused without the file.",
            ),
            state_dir: set.string(
                "state-dir",
                STATE_DIR,
                "Folder for the last good version of each hook server file, kept over restarts.",
            ),
            control: set.string(
                "control",
                "",
                "Socket that the commands status, explain, tap, forget and upgrade ask; \
                 control.sock in --state-dir unless set.",
            ),
            take_over: set.bool(
                "take-over",
                false,
                "Take the sockets and the calls over from the proxy that answers at --control, if \
                 one does.",
            ),
            hook_budget: set.duration(
                "hook-budget",
                HOOK_BUDGET,
                "Time limit of all hook servers together for one call.",
            ),
            on_conflict: set.string(
                "on-conflict",
                "refuse",
                "What happens to a server's change of a field that another has changed before: \
                 refuse, first or last.",
            ),
            skip: set.string(
                "skip",
                "",
                "KEY=VALUE: the same as --runtime-hook-server-key and --runtime-hook-server-val.",
            ),
            no_skip: set.bool("no-skip", false, "Call hook servers for every pod, whatever its labels."),
            skip_annotations: set.bool(
                "skip-annotations",
                false,
                "Skip hooks also for pods that have the key and value of the skip label as an annotation.",
            ),
            skip_namespace: set.string_list(
                "skip-namespace",
                Vec::new(),
                "Namespace whose pods may skip hooks. Unset: all namespaces.",
            ),
            zero_oom_score_adj: set.bool(
                "zero-oom-score-adj",
                false,
                "Apply an oom_score_adj of 0 in a server's answer. false: 0 means unset.",
            ),
            busy_poll: set.duration(
                "busy-poll",
                BUSY_POLL,
                "Time for which the proxy polls for the next step of a call before it sleeps.",
            ),
            drain: set.duration(
                "drain",
                DRAIN,
                "Time that calls in flight have to finish when the proxy stops.",
            ),
            http_endpoint: set.string(
                "http-endpoint",
                "",
                "Address that serves /healthz, /readyz and /metrics, such as 127.0.0.1:9090.",
            ),
        }
    }
}

/// The settings that a command line asks for.
fn settings(
    upstream: &UpstreamFlags,
    own: &OwnFlags,
    parsed: &Parsed,
) -> Result<Settings, FlagError> {
    upstream.check_mode(parsed)?;
    let wrong = |name: &str, error: String| parsed.usage_error(format_args!("--{name}: {error}"));
    let socket = |flag: &Flag<String>| {
        let text: &String = parsed.get(flag);
        socket_of(text).map_err(|error| wrong(flag.name(), error.to_string()))
    };
    let either = |own: &Flag<String>, upstream: &Flag<String>| {
        socket(if parsed.is_set(own) { own } else { upstream })
    };
    let duration = |flag: &Flag<Duration>, check: fn(Duration) -> Result<Duration, String>| {
        check(*parsed.get(flag)).map_err(|error| wrong(flag.name(), error))
    };
    let given = |flag: &Flag<String>| parsed.is_set(flag).then(|| parsed.get(flag).clone());
    let pair = match given(&own.skip) {
        Some(text) => text.parse().map_err(|error| wrong(own.skip.name(), error))?,
        None => Skip {
            key: parsed.get(&upstream.skip_key).clone(),
            value: parsed.get(&upstream.skip_value).clone(),
            ..Skip::default()
        },
    };
    let conflict = parsed.get(&own.on_conflict);
    let on_conflict = OnConflict::from_str(conflict, false).map_err(|_| {
        let error = format!("unknown value {conflict:?}, expected refuse, first or last");
        wrong(own.on_conflict.name(), error)
    })?;
    Ok(Settings {
        listen: Some(either(&own.listen, &upstream.listen)?),
        runtime: Some(either(&own.runtime, &upstream.runtime)?),
        hooks_dir: PathBuf::from(parsed.get(&own.hooks_dir)),
        require_server: parsed.get(&own.require_server).clone(),
        state_dir: PathBuf::from(parsed.get(&own.state_dir)),
        control: parsed.is_set(&own.control).then(|| socket(&own.control)).transpose()?,
        take_over: *parsed.get(&own.take_over),
        hook_budget: duration(&own.hook_budget, check_hook_budget)?,
        on_conflict,
        skip: pair,
        no_skip: *parsed.get(&own.no_skip),
        skip_annotations: *parsed.get(&own.skip_annotations),
        skip_namespace: parsed.get(&own.skip_namespace).clone(),
        zero_oom_score_adj: *parsed.get(&own.zero_oom_score_adj),
        busy_poll: duration(&own.busy_poll, check_busy_poll)?,
        drain: *parsed.get(&own.drain),
        http_endpoint: given(&own.http_endpoint),
    })
}

/// The commands of `wharf proxy`, under this name.
#[derive(Parser)]
struct Commands {
    #[command(subcommand)]
    command: Command,
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    // Upstream takes flags only, so a first argument without a dash is a command of ours.
    if args.first().is_some_and(|word| Command::has_subcommand(word)) {
        let args = [name.to_owned()].into_iter().chain(args);
        return Commands::parse_from(args).command.run();
    }
    let about = "Stands between kubelet and container runtime, and asks hook servers. The commands \
                 check-config, status, explain, tap, forget and upgrade are those of `wharf proxy`.";
    let mut set = FlagSet::new(name, about).dialect(Dialect::Pflag);
    let (upstream, own) = (UpstreamFlags::register(&mut set), OwnFlags::register(&mut set));
    let logging = LoggingFlags::register(&mut set);
    let parsed = match set.parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    let plan = match settings(&upstream, &own, &parsed) {
        Ok(settings) => settings.plan(),
        Err(error) => return usage(&error),
    };
    let _guard = match logging.init(&parsed) {
        Ok(guard) => guard,
        Err(error) => return usage(&parsed.usage_error(error)),
    };
    if parsed.is_set(&upstream.image) {
        warn!(
            flag = "remote-image-service-endpoint",
            "ignored: image calls go to --remote-runtime-service-endpoint"
        );
    }
    run(Threads::One, |stop| plan.serve(stop))
}
