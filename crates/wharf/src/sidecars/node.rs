//! The registrar and the liveness probe, which run on each node with its driver and need no
//! Kubernetes API. Their process may run controllers as well.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use wharf_cli::{Admin, CheckFailure, Flag, FlagError, FlagSet, LoggingFlags, Parsed};
use wharf_registration::plugin::{Registrar, RegistrarHealth, RegistrarOptions};
use wharf_uds::RpcMetrics;

use super::{controller::Target, process_health::ProcessHealth, supervisor::supervise};
use crate::{
    liveness::{Probe, ProbeFlags},
    registrar::RegistrationFlags,
};

pub(super) const REGISTRAR: &str = "registrar";
pub(super) const LIVENESS: &str = "liveness";

/// Flags that every process has.
pub(super) struct ProcessFlags {
    pub(super) http_endpoint: Flag<String>,
    pub(super) version: Flag<bool>,
    pub(super) logging: LoggingFlags,
}

impl ProcessFlags {
    fn register(set: &mut FlagSet) -> Self {
        set.bool("automaxprocs", false, "Ignored: the process has no Go runtime.");
        Self {
            http_endpoint: set.string(
                "http-endpoint",
                "",
                "Address for /metrics and /readyz, such as :8080. Empty: no HTTP server.",
            ),
            version: set.bool("version", false, "Print the version and exit."),
            logging: LoggingFlags::register(set),
        }
    }
}

/// The command line of the registrar in a combined process.
pub(super) struct RegistrarFlags {
    registration: RegistrationFlags,
    pub(super) process: ProcessFlags,
}

impl RegistrarFlags {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        Self {
            registration: RegistrationFlags::register(set),
            process: ProcessFlags::register(set),
        }
    }

    pub(super) fn task(&self, parsed: &Parsed) -> Result<NodeTask, FlagError> {
        let options = self.registration.options(parsed)?;
        Ok(NodeTask::Registrar { options: Box::new(options), health: Arc::default() })
    }
}

/// The command line of the liveness probe in a combined process.
pub(super) struct LivenessFlags {
    probe: ProbeFlags,
    pub(super) process: ProcessFlags,
}

impl LivenessFlags {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        Self { probe: ProbeFlags::register(set), process: ProcessFlags::register(set) }
    }

    pub(super) fn task(&self, parsed: &Parsed) -> Result<NodeTask, FlagError> {
        Ok(NodeTask::Liveness(self.probe.probe(parsed)?))
    }
}

/// Work on a node that needs no Kubernetes API.
#[derive(Clone)]
pub(super) enum NodeTask {
    /// Registers the driver with the kubelet.
    Registrar {
        options: Box<RegistrarOptions>,
        /// Health of the current registrar.
        health: Arc<Mutex<Option<RegistrarHealth>>>,
    },
    /// Answers on its own port whether the driver is alive.
    Liveness(Probe),
}

impl NodeTask {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Registrar { .. } => REGISTRAR,
            Self::Liveness(_) => LIVENESS,
        }
    }

    /// Runs until `stop`, and restarts after a pause if it failed.
    pub(super) async fn run<T: Target>(
        self,
        calls: RpcMetrics,
        process_health: ProcessHealth<T>,
        stop: CancellationToken,
    ) {
        let begin = || self.clone().run_once(calls.clone(), stop.clone());
        // Supervised as one of several, so that its error does not end the process.
        let _ = supervise(self.name(), &process_health, &stop, false, begin).await;
    }

    async fn run_once(self, calls: RpcMetrics, stop: CancellationToken) -> anyhow::Result<()> {
        match self {
            Self::Registrar { options, health } => {
                let registrar =
                    Registrar::new(RegistrarOptions { metrics: Some(calls), ..*options });
                *health.lock().unwrap_or_else(PoisonError::into_inner) = Some(registrar.health());
                registrar.run(stop).await.context("registration")
            }
            Self::Liveness(probe) => match probe.find(&calls, &stop).await {
                Some(calls) => probe.serve(calls, Admin::new(), stop).await,
                None => Ok(()),
            },
        }
    }

    /// Adds the registrar's `/healthz` to the admin endpoint.
    pub(super) fn show(&self, admin: Admin) -> Admin {
        let Self::Registrar { options, health } = self else { return admin };
        let (timeout, health) = (options.timeout, health.clone());
        admin.check("/healthz", move || {
            let health = health.lock().unwrap_or_else(PoisonError::into_inner).clone();
            async move {
                match health {
                    Some(health) => health
                        .check(timeout)
                        .await
                        .map_err(|(status, text)| CheckFailure::new(status, text)),
                    None => Err(CheckFailure::new(503, "registration has not begun")),
                }
            }
        })
    }
}
