//! Flags that all sidecars have.

mod work;

use std::{path::PathBuf, time::Duration};

use wharf_cli::{
    FeatureGates, Flag, FlagError, FlagSet, Gate, LoggingFlags, Parsed, Stage, exclusive,
};
use wharf_cluster::{Access, Throttle};

pub(super) use self::work::{MasterFlag, NodeFlag, RetryFlags, variable, workers};
use super::{
    driver::{DriverOptions, NodeFacts},
    election::{ElectionFlags, ElectionPlan},
};

/// Flags with one value for the whole process, whatever runs in it. The flags of the log are such
/// flags, too.
pub(super) const WHOLE: [&str; 8] = [
    "automaxprocs",
    "csi-address",
    "http-endpoint",
    "kubeconfig",
    "master",
    "metrics-address",
    "metrics-path",
    "version",
];

/// Releases the Lease when the process ends without an error.
pub(super) const RELEASE_ON_EXIT: Gate =
    Gate::new("ReleaseLeaderElectionOnExit", Stage::Alpha, false);

/// HTTP path of the election's health.
pub(super) const ELECTION_HEALTH: &str = "/healthz/leader-election";

/// Flags that every sidecar has.
pub(super) struct CommonFlags {
    kubeconfig: Flag<String>,
    qps: Flag<f64>,
    burst: Flag<i64>,
    http_endpoint: Flag<String>,
    metrics_address: Flag<String>,
    metrics_path: Flag<String>,
    election: ElectionFlags,
    pub(super) gates: Flag<FeatureGates>,
    pub(super) version: Flag<bool>,
    pub(super) logging: LoggingFlags,
}

/// The values of [`CommonFlags`].
pub(super) struct Common {
    pub(super) access: Access,
    /// `None`: no limit of its own; the API server's fairness rules apply.
    pub(super) throttle: Option<Throttle>,
    pub(super) http: Option<Http>,
    /// `None` where there is one replica only.
    pub(super) election: Option<ElectionPlan>,
}

/// The HTTP endpoint: metrics, and health of the election if `health` is set.
#[derive(Clone)]
pub(super) struct Http {
    pub(super) address: String,
    pub(super) flag: &'static str,
    pub(super) metrics_path: String,
    pub(super) health: bool,
}

impl CommonFlags {
    pub(super) fn register(set: &mut FlagSet, gates: FeatureGates) -> Self {
        let flags = Self {
            kubeconfig: set.string(
                "kubeconfig",
                "",
                "Path of a kubeconfig file. Empty: the pod's service account.",
            ),
            qps: set.float(
                "kube-api-qps",
                5.0,
                "Average limit of requests to the Kubernetes API per second. Unless this flag or --kube-api-burst is \
                 set, only the API server limits requests.",
            ),
            burst: set.int(
                "kube-api-burst",
                10,
                "Requests to the Kubernetes API that may exceed --kube-api-qps for a moment.",
            ),
            http_endpoint: set.string(
                "http-endpoint",
                "",
                "Address for metrics and /healthz/leader-election, such as :8080. Empty: no HTTP server.",
            ),
            metrics_address: set.string("metrics-address", "", "Address for metrics. Empty: none."),
            metrics_path: set.string("metrics-path", "/metrics", "HTTP path of the metrics."),
            election: ElectionFlags::register(set),
            gates: set.feature_gates(gates),
            version: set.bool("version", false, "Print the version and exit."),
            logging: LoggingFlags::register(set),
        };
        set.deprecate("metrics-address", "use --http-endpoint");
        set.bool("automaxprocs", false, "Ignored: the process has no Go runtime.");
        retire(set, &[("connection-timeout", Retired::Time, "wharf waits 30s for the driver")]);
        flags
    }

    pub(super) fn common(&self, parsed: &Parsed) -> Result<Common, FlagError> {
        let given =
            |flag: &Flag<String>| Some(parsed.get(flag).clone()).filter(|text| !text.is_empty());
        let release = parsed.get(&self.gates).enabled(&RELEASE_ON_EXIT);
        Ok(Common {
            access: Access::new(given(&self.kubeconfig).map(PathBuf::from)),
            throttle: self.throttle(parsed)?,
            http: self.http(parsed)?,
            election: self.election.plan(parsed, release)?,
        })
    }

    fn throttle(&self, parsed: &Parsed) -> Result<Option<Throttle>, FlagError> {
        if !parsed.is_set(&self.qps) && !parsed.is_set(&self.burst) {
            return Ok(None);
        }
        let (qps, burst) = (*parsed.get(&self.qps), *parsed.get(&self.burst));
        // As in client-go: a negative rate means no limit.
        if qps < 0.0 {
            return Ok(None);
        }
        let throttle = u32::try_from(burst).ok().and_then(|burst| Throttle::new(qps, burst));
        throttle.map(Some).ok_or_else(|| {
            parsed.usage_error(format_args!(
                "--kube-api-qps={qps} and --kube-api-burst={burst}: expected both to be more than 0, or a negative \
                 --kube-api-qps for no limit"
            ))
        })
    }

    fn http(&self, parsed: &Parsed) -> Result<Option<Http>, FlagError> {
        exclusive(parsed, &[&self.metrics_address, &self.http_endpoint])?;
        let metrics_path = parsed.get(&self.metrics_path).clone();
        let plain = |char: char| char.is_ascii_alphanumeric() || "/-._~".contains(char);
        if !metrics_path.starts_with('/')
            || !metrics_path.chars().all(plain)
            || metrics_path == ELECTION_HEALTH
        {
            return Err(parsed.usage_error(format_args!(
                "--metrics-path: {metrics_path:?}: expected a path such as /metrics, and not {ELECTION_HEALTH}"
            )));
        }
        let http = |flag: &Flag<String>, health| Http {
            address: parsed.get(flag).clone(),
            flag: flag.name(),
            metrics_path,
            health,
        };
        Ok(if parsed.is_changed(&self.http_endpoint) {
            Some(http(&self.http_endpoint, true))
        } else if parsed.is_changed(&self.metrics_address) {
            Some(http(&self.metrics_address, false))
        } else {
            None
        })
    }
}

/// Flags of sidecars that call a driver.
pub(super) struct DriverFlags {
    address: Flag<String>,
    timeout: Flag<Duration>,
}

impl DriverFlags {
    /// Registers the flags, with the default of `--timeout`.
    pub(super) fn register(set: &mut FlagSet, timeout: Duration) -> Self {
        let help = "Path of the CSI driver's socket.";
        Self {
            address: set.string("csi-address", "/run/csi/socket", help),
            timeout: set.duration("timeout", timeout, "Limit for one call to the CSI driver."),
        }
    }

    pub(super) fn options(&self, parsed: &Parsed) -> Result<DriverOptions, FlagError> {
        let timeout = *parsed.get(&self.timeout);
        if timeout.is_zero() {
            return Err(parsed.usage_error("--timeout must be longer than 0s"));
        }
        let socket = wharf_uds::socket_of(parsed.get::<String>(&self.address))
            .map_err(|error| parsed.usage_error(format_args!("--csi-address: {error}")))?;
        Ok(DriverOptions { socket, timeout, node: NodeFacts::default() })
    }
}

/// The type of a flag that upstream has removed.
#[derive(Clone, Copy)]
pub(super) enum Retired {
    Switch,
    Text,
    Time,
}

/// Accepts flags of upstream's earlier releases: name, type, and what replaces them.
pub(super) fn retire(set: &mut FlagSet, flags: &[(&'static str, Retired, &str)]) {
    for (name, form, instead) in flags {
        let help = "Flag of an earlier release.";
        match form {
            Retired::Switch => drop(set.bool(name, false, help)),
            Retired::Text => drop(set.string(name, "", help)),
            Retired::Time => drop(set.duration(name, Duration::ZERO, help)),
        }
        set.deprecate(name, format!("it is ignored: {instead}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(args: &[&str]) -> Result<(Common, Vec<String>), FlagError> {
        let mut set = FlagSet::new("csi-test", "");
        let flags = CommonFlags::register(&mut set, FeatureGates::new(&[RELEASE_ON_EXIT]));
        let parsed = set.parse(args.iter().copied())?;
        Ok((flags.common(&parsed)?, parsed.warnings()))
    }

    #[test]
    fn one_address_serves_metrics_and_only_the_newer_flag_health() {
        assert!(common(&[]).unwrap().0.http.is_none());
        let http = |args: &[&str]| common(args).unwrap().0.http.unwrap();
        assert!(http(&["--http-endpoint=:1"]).health);
        let old = http(&["-metrics-address=:2", "--http-endpoint=", "--metrics-path=/m"]);
        assert_eq!((old.address.as_str(), old.metrics_path.as_str()), (":2", "/m"));
        assert_eq!((old.flag, old.health), ("metrics-address", false));
        for args in [
            &["--http-endpoint=:1", "--metrics-address=:2"][..],
            &["--metrics-path=metrics"],
            &["--metrics-path=/{x}"],
            &["--metrics-path=/healthz/leader-election"],
        ] {
            assert!(common(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn requests_are_throttled_only_when_asked_for() {
        let throttle = |args: &[&str]| common(args).map(|(common, _)| common.throttle);
        assert_eq!(throttle(&[]).unwrap(), None);
        assert_eq!(throttle(&["--kube-api-qps=50"]).unwrap(), Throttle::new(50.0, 10));
        assert_eq!(throttle(&["-kube-api-burst", "100"]).unwrap(), Throttle::new(5.0, 100));
        assert_eq!(throttle(&["--kube-api-qps=-1"]).unwrap(), None);
        for args in [&["--kube-api-qps=0"][..], &["--kube-api-burst=0"], &["--kube-api-qps=NaN"]] {
            assert!(throttle(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn what_is_not_obeyed_is_said() {
        let (_, warnings) = common(&["--connection-timeout=15s", "--metrics-address=:2"]).unwrap();
        for flag in ["connection-timeout", "metrics-address"] {
            let about = format!("--{flag} has been deprecated, ");
            assert_eq!(
                warnings.iter().filter(|text| text.contains(&about)).count(),
                1,
                "{flag}: {warnings:?}"
            );
        }
        assert_eq!(common(&[]).unwrap().1, [""; 0]);
    }
}
