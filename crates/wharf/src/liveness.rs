//! `wharf liveness`, also as livenessprobe.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wharf_cli::{
    Admin, CheckFailure, Flag, FlagError, FlagSet, LoggingFlags, Parsed, exclusive, process_metrics,
};
use wharf_registration::plugin::liveness;
use wharf_uds::RpcMetrics;

use crate::{
    registrar::print_version,
    running::{Threads, run, usage},
    unserved,
};

struct Flags {
    csi_address: Flag<String>,
    probe_timeout: Flag<Duration>,
    health_port: Flag<String>,
    http_endpoint: Flag<String>,
    metrics_address: Flag<String>,
    metrics_path: Flag<String>,
    version: Flag<bool>,
    logging: LoggingFlags,
}

impl Flags {
    fn register(set: &mut FlagSet) -> Self {
        let flags = Self {
            csi_address: set.string(
                "csi-address",
                "/run/csi/socket",
                "Path of the CSI driver's socket.",
            ),
            probe_timeout: set.duration(
                "probe-timeout",
                Duration::from_secs(3),
                "How long one probe of the driver may take.",
            ),
            health_port: set.string("health-port", "9808", "Port for /healthz on all addresses."),
            http_endpoint: set.string(
                "http-endpoint",
                "",
                "Address for /healthz and metrics, such as :8080, instead of --health-port and --metrics-address.",
            ),
            metrics_address: set.string("metrics-address", "", "Address for metrics. Empty: none."),
            metrics_path: set.string("metrics-path", "/metrics", "HTTP path of the metrics."),
            version: set.bool("version", false, "Print the version and exit."),
            logging: LoggingFlags::register(set),
        };
        set.deprecate("metrics-address", "use --http-endpoint");
        set.duration("connection-timeout", Duration::ZERO, "Of an earlier release.");
        set.deprecate("connection-timeout", "it has no effect");
        set.string("kubeconfig", "", "Of an earlier release.");
        set.deprecate("kubeconfig", "it has no effect: the API server is not asked");
        set.bool("automaxprocs", false, "Ignored: the process has no Go runtime.");
        unserved::warn_of(set, "livenessprobe");
        flags
    }
}

/// What to serve where.
struct Plan {
    socket: PathBuf,
    timeout: Duration,
    health: String,
    metrics: Option<String>,
    metrics_path: String,
}

impl Plan {
    fn new(flags: &Flags, parsed: &Parsed) -> Result<Self, FlagError> {
        exclusive(parsed, &[&flags.http_endpoint, &flags.health_port])?;
        exclusive(parsed, &[&flags.http_endpoint, &flags.metrics_address])?;
        let socket = wharf_uds::socket_of(parsed.get::<String>(&flags.csi_address))
            .map_err(|error| parsed.usage_error(format_args!("--csi-address: {error}")))?;
        let metrics_path = parsed.get(&flags.metrics_path).clone();
        if !metrics_path.starts_with('/') || metrics_path == "/healthz" {
            return Err(parsed.usage_error(format_args!(
                "--metrics-path: {metrics_path:?} must begin with / and must not be /healthz"
            )));
        }
        let port = parsed.get(&flags.health_port);
        if port.parse::<u16>().is_err() {
            return Err(parsed.usage_error(format_args!(
                "--health-port: {port:?} is no port, expected 0 to 65535"
            )));
        }
        let given =
            |flag: &Flag<String>| Some(parsed.get(flag).clone()).filter(|text| !text.is_empty());
        let (health, metrics) = match given(&flags.http_endpoint) {
            Some(endpoint) => (endpoint.clone(), Some(endpoint)),
            None => (format!(":{port}"), given(&flags.metrics_address)),
        };
        let timeout = *parsed.get(&flags.probe_timeout);
        Ok(Self { socket, timeout, health, metrics, metrics_path })
    }
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let mut set =
        FlagSet::new(name, "Answers over HTTP whether a CSI driver lives, for a liveness probe.");
    let flags = Flags::register(&mut set);
    let parsed = match set.parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    if *parsed.get(&flags.version) {
        return print_version(name);
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

async fn serve(plan: Plan, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let mut registry = Registry::default();
    process_metrics(&mut registry);
    let metrics = RpcMetrics::register(&mut registry);
    let registry = Arc::new(registry);

    // The port opens only then: a kubelet that finds it closed knows that the driver has not started.
    let asking = liveness::driver_name(&plan.socket, None);
    let Some(name) = stop.run_until_cancelled(asking).await else {
        return Ok(ExitCode::SUCCESS);
    };
    info!(driver = %name, "CSI driver answers");
    let metrics = metrics.for_driver(&name);
    let (socket, timeout) = (plan.socket, plan.timeout);
    let mut health = Admin::new().check("/healthz", move || {
        let (socket, metrics) = (socket.clone(), metrics.clone());
        async move {
            let checked = liveness::check(&socket, timeout, Some(metrics)).await;
            checked.map_err(|text| {
                warn!(err = %text, "health check failed");
                CheckFailure::new(500, text)
            })
        }
    });
    let mut serving = JoinSet::new();
    match plan.metrics {
        Some(address) if address == plan.health => {
            health = health.metrics(&plan.metrics_path, registry);
        }
        Some(address) => {
            let only_metrics =
                Admin::new().flag("metrics-address").metrics(&plan.metrics_path, registry);
            serving.spawn(only_metrics.bind(&address).await?.serve(stop.clone()));
        }
        None => {}
    }
    serving.spawn(health.bind(&plan.health).await?.serve(stop));
    serving.join_all().await;
    Ok(ExitCode::SUCCESS)
}
