//! `wharf proxy` under the name and with the flags of koord-runtime-proxy.

use std::process::ExitCode;

use tracing::warn;
use wharf_cli::{Dialect, Flag, FlagError, FlagSet, LoggingFlags, Parsed};
use wharf_criproxy::{ProxyOptions, Skip};
use wharf_facts::hook;
use wharf_uds::socket_of;

use super::run::{DRAIN, Plan};
use crate::running::{Threads, run, usage};

struct Flags {
    listen: Flag<String>,
    runtime: Flag<String>,
    image: Flag<String>,
    mode: Flag<String>,
    skip_key: Flag<String>,
    skip_value: Flag<String>,
    logging: LoggingFlags,
}

impl Flags {
    fn register(set: &mut FlagSet) -> Flags {
        let skip = Skip::default();
        Flags {
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
                "Ignored: the image service is that of the runtime's socket.",
            ),
            mode: set.string(
                "backend-runtime-mode",
                "Containerd",
                "Containerd. Docker is not served: put this in front of cri-dockerd instead.",
            ),
            skip_key: set.string(
                "runtime-hook-server-key",
                skip.key,
                "Label or annotation of pods that are passed on without hooks.",
            ),
            skip_value: set.string(
                "runtime-hook-server-val",
                skip.value,
                "The value that this label or annotation has to have.",
            ),
            logging: LoggingFlags::register(set),
        }
    }

    fn plan(&self, parsed: &Parsed) -> Result<Plan, FlagError> {
        let socket = |flag: &Flag<String>| {
            let text: &String = parsed.get(flag);
            socket_of(text)
                .map_err(|error| parsed.usage_error(format_args!("--{}: {error}", flag.name())))
        };
        match parsed.get(&self.mode).as_str() {
            "Containerd" => {}
            "Docker" => {
                return Err(parsed.usage_error(
                    "--backend-runtime-mode=Docker is not served: run cri-dockerd, and give its socket \
                     as --remote-runtime-service-endpoint with --backend-runtime-mode=Containerd",
                ));
            }
            other => {
                return Err(parsed.usage_error(format_args!(
                    "--backend-runtime-mode: unknown mode {other:?}, expected Containerd"
                )));
            }
        }
        Ok(Plan {
            listen: socket(&self.listen)?,
            http: None,
            drain: DRAIN,
            options: ProxyOptions {
                skip: Skip {
                    key: parsed.get(&self.skip_key).clone(),
                    value: parsed.get(&self.skip_value).clone(),
                },
                at_rest: super::give_back,
                ..ProxyOptions::new(socket(&self.runtime)?, hook::FOLDER)
            },
        })
    }
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let about = "Stands between kubelet and container runtime, and asks hook servers.";
    let mut set = FlagSet::new(name, about).dialect(Dialect::Pflag);
    let flags = Flags::register(&mut set);
    let parsed = match set.parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    let plan = match flags.plan(&parsed) {
        Ok(plan) => plan,
        Err(error) => return usage(&error),
    };
    let _guard = match flags.logging.init(&parsed) {
        Ok(guard) => guard,
        Err(error) => return usage(&parsed.usage_error(error)),
    };
    if parsed.is_set(&flags.image) {
        warn!(
            flag = "remote-image-service-endpoint",
            "ignored: the image service is that of --remote-runtime-service-endpoint"
        );
    }
    run(Threads::One, |stop| plan.serve(stop))
}
