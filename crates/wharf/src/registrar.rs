//! `wharf registrar`, also as csi-node-driver-registrar.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_cli::{
    Admin, CheckFailure, Flag, FlagError, FlagSet, LoggingFlags, Parsed, exclusive,
    process_metrics, required,
};
use wharf_registration::plugin::{Registrar, RegistrarOptions};
use wharf_uds::RpcMetrics;

use crate::{
    runtime::{Threads, run, usage},
    unserved,
};

/// The mode that older manifests run in an exec probe. It has no effect any more.
const PROBE_MODE: &str = "kubelet-registration-probe";

/// Flags of the driver's socket and the registration socket.
pub(crate) struct RegistrationFlags {
    csi_address: Flag<String>,
    kubelet_registration_path: Flag<String>,
    plugin_registration_path: Flag<String>,
    timeout: Flag<Duration>,
}

struct Flags {
    registration: RegistrationFlags,
    http_endpoint: Flag<String>,
    health_port: Flag<i64>,
    mode: Flag<String>,
    enable_pprof: Flag<bool>,
    version: Flag<bool>,
    logging: LoggingFlags,
}

impl RegistrationFlags {
    pub(crate) fn register(set: &mut FlagSet) -> Self {
        Self {
            csi_address: set.string(
                "csi-address",
                "/run/csi/socket",
                "Path of the CSI driver's socket as this process sees it.",
            ),
            kubelet_registration_path: set.string(
                "kubelet-registration-path",
                "",
                "Path of the CSI driver's socket as the kubelet on the host sees it. Required.",
            ),
            plugin_registration_path: set.string(
                "plugin-registration-path",
                "/registration",
                "Folder for the registration socket as this process sees it; the kubelet's plugins_registry.",
            ),
            timeout: set.duration(
                "timeout",
                Duration::from_secs(1),
                "Limit for the CSI driver's GetPluginInfo.",
            ),
        }
    }

    pub(crate) fn options(&self, parsed: &Parsed) -> Result<RegistrarOptions, FlagError> {
        let csi_address = wharf_uds::socket_of(parsed.get::<String>(&self.csi_address))
            .map_err(|error| parsed.usage_error(format_args!("--csi-address: {error}")))?;
        Ok(RegistrarOptions {
            csi_address,
            kubelet_registration_path: required(parsed, &self.kubelet_registration_path)?
                .to_owned(),
            registration_folder: PathBuf::from(parsed.get(&self.plugin_registration_path)),
            timeout: *parsed.get(&self.timeout),
            metrics: None,
        })
    }
}

impl Flags {
    fn register(set: &mut FlagSet) -> Self {
        let flags = Self {
            registration: RegistrationFlags::register(set),
            http_endpoint: set.string(
                "http-endpoint",
                "",
                "Address for /healthz and /metrics, such as :8080. Empty: no HTTP server.",
            ),
            health_port: set.int(
                "health-port",
                0,
                "Port for /healthz on all addresses. 0: no HTTP server.",
            ),
            mode: set.string(
                "mode",
                "",
                "Empty or registration: register. kubelet-registration-probe: exit with 0 at once.",
            ),
            enable_pprof: set.bool(
                "enable-pprof",
                false,
                "Serve /debug/pprof/ on the HTTP endpoint. It names tools to use instead: the process has no Go runtime.",
            ),
            version: set.bool("version", false, "Print the version and exit."),
            logging: LoggingFlags::register(set),
        };
        set.duration("connection-timeout", Duration::ZERO, "Flag of an earlier release.");
        set.deprecate("connection-timeout", "it has no effect");
        set.string("kubeconfig", "", "Flag of an earlier release.");
        set.deprecate(
            "kubeconfig",
            "it has no effect: the program makes no requests to the API server",
        );
        set.bool("automaxprocs", false, "Ignored: the process has no Go runtime.");
        unserved::warn_of(set, "csi-node-driver-registrar");
        set.deprecate("health-port", "use --http-endpoint");
        set.deprecate("mode", "kubelet-registration-probe has no effect any more");
        flags
    }
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let mut set = FlagSet::new(
        name,
        "Registers a CSI driver with the kubelet: creates the registration socket and answers on it.",
    );
    let flags = Flags::register(&mut set);
    let parsed = match set.parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    if *parsed.get(&flags.version) {
        return print_version(name);
    }
    if parsed.get(&flags.mode) == PROBE_MODE {
        return ExitCode::SUCCESS;
    }
    let plan = match Plan::new(&flags, &parsed) {
        Ok(plan) => plan,
        Err(error) => return usage(&error),
    };
    let _guard = match flags.logging.init(&parsed) {
        Ok(guard) => guard,
        Err(error) => return usage(&parsed.usage_error(error)),
    };
    run(Threads::One, |stop| serve(plan, stop))
}

/// Prints the name and the version, as `--version` of the Go programs does.
pub(crate) fn print_version(name: &str) -> ExitCode {
    use std::io::Write;
    let printed = writeln!(std::io::stdout(), "{name} v{}", env!("CARGO_PKG_VERSION"));
    if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The driver to register, and the HTTP endpoint.
struct Plan {
    options: RegistrarOptions,
    http: Option<String>,
    pprof: bool,
}

impl Plan {
    fn new(flags: &Flags, parsed: &Parsed) -> Result<Self, FlagError> {
        let mode = parsed.get(&flags.mode);
        if !matches!(mode.as_str(), "" | "registration") {
            return Err(parsed.usage_error(format_args!(
                "--mode: unknown mode {mode:?}, expected registration or {PROBE_MODE}"
            )));
        }
        exclusive(parsed, &[&flags.health_port, &flags.http_endpoint])?;
        let port = *parsed.get(&flags.health_port);
        if !(0..=65535).contains(&port) {
            return Err(parsed.usage_error(format_args!(
                "--health-port: invalid port {port}, expected 0 to 65535"
            )));
        }
        let http = match parsed.get(&flags.http_endpoint).as_str() {
            "" => (port > 0).then(|| format!(":{port}")),
            endpoint => Some(endpoint.to_owned()),
        };
        let options = flags.registration.options(parsed)?;
        Ok(Self { options, http, pprof: *parsed.get(&flags.enable_pprof) })
    }
}

async fn serve(plan: Plan, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let Plan { mut options, http, pprof } = plan;
    let mut registry = Registry::default();
    process_metrics(&mut registry);
    options.metrics = Some(RpcMetrics::register(&mut registry));
    let timeout = options.timeout;
    let registrar = Registrar::new(options);
    let mut serving = JoinSet::new();
    if let Some(address) = http {
        let health = registrar.health();
        let admin =
            Admin::new().metrics("/metrics", Arc::new(registry)).check("/healthz", move || {
                let health = health.clone();
                async move {
                    health
                        .check(timeout)
                        .await
                        .map_err(|(status, text)| CheckFailure::new(status, text))
                }
            });
        let admin = if pprof { admin.pprof() } else { admin };
        serving.spawn(admin.bind(&address).await?.serve(stop.clone()));
    }
    let outcome = registrar.run(stop.clone()).await;
    stop.cancel();
    serving.join_all().await;
    outcome.context("registration")?;
    Ok(ExitCode::SUCCESS)
}
