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
    runtime::{Threads, run, usage},
    unserved,
};

/// Flags of the probed driver and the health port.
pub(crate) struct ProbeFlags {
    csi_address: Flag<String>,
    probe_timeout: Flag<Duration>,
    health_port: Flag<String>,
}

struct Flags {
    probe: ProbeFlags,
    http_endpoint: Flag<String>,
    metrics_address: Flag<String>,
    metrics_path: Flag<String>,
    version: Flag<bool>,
    logging: LoggingFlags,
}

/// A driver that is probed at each HTTP request to an address.
#[derive(Clone)]
pub(crate) struct Probe {
    socket: PathBuf,
    timeout: Duration,
    address: String,
}

impl ProbeFlags {
    pub(crate) fn register(set: &mut FlagSet) -> Self {
        Self {
            csi_address: set.string(
                "csi-address",
                "/run/csi/socket",
                "Path of the CSI driver's socket.",
            ),
            probe_timeout: set.duration(
                "probe-timeout",
                Duration::from_secs(3),
                "Limit for one Probe of the CSI driver.",
            ),
            health_port: set.string("health-port", "9808", "Port for /healthz on all addresses."),
        }
    }

    /// The probe that the flags ask for, on the health port.
    pub(crate) fn probe(&self, parsed: &Parsed) -> Result<Probe, FlagError> {
        let socket = wharf_uds::socket_of(parsed.get::<String>(&self.csi_address))
            .map_err(|error| parsed.usage_error(format_args!("--csi-address: {error}")))?;
        let port = parsed.get(&self.health_port);
        if port.parse::<u16>().is_err() {
            return Err(parsed.usage_error(format_args!(
                "--health-port: invalid port {port:?}, expected 0 to 65535"
            )));
        }
        Ok(Probe { socket, timeout: *parsed.get(&self.probe_timeout), address: format!(":{port}") })
    }
}

impl Probe {
    /// Waits until the driver answers its name, and returns the metrics of its calls; `None` if
    /// stopped before.
    ///
    /// Ports open only afterwards: a kubelet that finds them closed knows that the driver has not
    /// started.
    pub(crate) async fn find(
        &self,
        calls: &RpcMetrics,
        stop: &CancellationToken,
    ) -> Option<RpcMetrics> {
        let name = stop.run_until_cancelled(liveness::driver_name(&self.socket, None)).await?;
        info!(driver = %name, "CSI driver answers");
        Some(calls.for_driver(&name))
    }

    /// Serves `/healthz` and the paths of `admin` on the same address, until `stop`.
    pub(crate) async fn serve(
        self,
        calls: RpcMetrics,
        admin: Admin,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let Self { socket, timeout, address } = self;
        let health = admin.check("/healthz", move || {
            let (socket, calls) = (socket.clone(), calls.clone());
            async move {
                let checked = liveness::check(&socket, timeout, Some(calls)).await;
                checked.map_err(|text| {
                    warn!(error = %text, "health check failed");
                    CheckFailure::new(500, text)
                })
            }
        });
        health.bind(&address).await?.serve(stop).await;
        Ok(())
    }
}

impl Flags {
    fn register(set: &mut FlagSet) -> Self {
        let flags = Self {
            probe: ProbeFlags::register(set),
            http_endpoint: set.string(
                "http-endpoint",
                "",
                "Address for /healthz and metrics, such as :8080. It replaces --health-port and --metrics-address.",
            ),
            metrics_address: set.string("metrics-address", "", "Address for metrics. Empty: none."),
            metrics_path: set.string("metrics-path", "/metrics", "HTTP path of the metrics."),
            version: set.bool("version", false, "Print the version and exit."),
            logging: LoggingFlags::register(set),
        };
        set.deprecate("metrics-address", "use --http-endpoint");
        set.duration("connection-timeout", Duration::ZERO, "Flag of an earlier release.");
        set.deprecate("connection-timeout", "it has no effect");
        set.string("kubeconfig", "", "Flag of an earlier release.");
        set.deprecate(
            "kubeconfig",
            "it has no effect: the program makes no requests to the API server",
        );
        set.bool("automaxprocs", false, "Ignored: the process has no Go runtime.");
        unserved::warn_of(set, "livenessprobe");
        flags
    }
}

/// The probe, and the address of the metrics.
struct Plan {
    probe: Probe,
    metrics: Option<String>,
    metrics_path: String,
}

impl Plan {
    fn new(flags: &Flags, parsed: &Parsed) -> Result<Self, FlagError> {
        exclusive(parsed, &[&flags.http_endpoint, &flags.probe.health_port])?;
        exclusive(parsed, &[&flags.http_endpoint, &flags.metrics_address])?;
        let metrics_path = parsed.get(&flags.metrics_path).clone();
        if !metrics_path.starts_with('/') || metrics_path == "/healthz" {
            return Err(parsed.usage_error(format_args!(
                "--metrics-path: {metrics_path:?} must begin with / and must not be /healthz"
            )));
        }
        let mut probe = flags.probe.probe(parsed)?;
        let given =
            |flag: &Flag<String>| Some(parsed.get(flag).clone()).filter(|text| !text.is_empty());
        let metrics = match given(&flags.http_endpoint) {
            Some(endpoint) => {
                probe.address.clone_from(&endpoint);
                Some(endpoint)
            }
            None => given(&flags.metrics_address),
        };
        Ok(Self { probe, metrics, metrics_path })
    }
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let mut set =
        FlagSet::new(name, "Serves the health of a CSI driver over HTTP, for a liveness probe.");
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
    let calls = RpcMetrics::register(&mut registry);
    let Plan { probe, metrics: address, metrics_path } = plan;
    let Some(calls) = probe.find(&calls, &stop).await else { return Ok(ExitCode::SUCCESS) };
    let metrics = Admin::new().metrics(&metrics_path, Arc::new(registry));
    let mut serving = JoinSet::new();
    let admin = match address {
        Some(address) if address == probe.address => metrics,
        Some(address) => {
            let metrics = metrics.flag("metrics-address").bind(&address).await?;
            serving.spawn(metrics.serve(stop.clone()));
            Admin::new()
        }
        None => Admin::new(),
    };
    let outcome = probe.serve(calls, admin, stop.clone()).await;
    stop.cancel();
    serving.join_all().await;
    outcome.map(|()| ExitCode::SUCCESS)
}
