//! What runs on each node beside its driver, in a process with controllers or without any. It needs no Kubernetes API.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use wharf_cli::{Admin, CheckFailure, Flag, FlagError, FlagSet, LoggingFlags, Parsed};
use wharf_registration::plugin::{Registrar, RegistrarHealth, RegistrarOptions};
use wharf_uds::RpcMetrics;

use super::{controller::Served, eyes::Eyes, shift::supervise};
use crate::{
    liveness::{Probe, ProbeFlags},
    registrar::RegistrationFlags,
};

pub(super) const REGISTRAR: &str = "registrar";
pub(super) const LIVENESS: &str = "liveness";

/// Flags of a process, whatever runs in it.
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

/// The command line of the registrar among others.
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

    pub(super) fn part(&self, parsed: &Parsed) -> Result<NodePart, FlagError> {
        let options = self.registration.options(parsed)?;
        Ok(NodePart::Registrar { options: Box::new(options), health: Arc::default() })
    }
}

/// The command line of the liveness probe among others.
pub(super) struct LivenessFlags {
    probe: ProbeFlags,
    pub(super) process: ProcessFlags,
}

impl LivenessFlags {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        Self { probe: ProbeFlags::register(set), process: ProcessFlags::register(set) }
    }

    pub(super) fn part(&self, parsed: &Parsed) -> Result<NodePart, FlagError> {
        Ok(NodePart::Liveness(self.probe.probe(parsed)?))
    }
}

/// What is to run.
#[derive(Clone)]
pub(super) enum NodePart {
    /// Tells the kubelet that the driver is there.
    Registrar {
        options: Box<RegistrarOptions>,
        /// Of the registrar that runs now.
        health: Arc<Mutex<Option<RegistrarHealth>>>,
    },
    /// Answers on a port of its own whether the driver lives.
    Liveness(Probe),
}

impl NodePart {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Registrar { .. } => REGISTRAR,
            Self::Liveness(_) => LIVENESS,
        }
    }

    /// Runs it until it is told to stop, again after a pause if it failed.
    pub(super) async fn run<For: Served>(
        self,
        calls: RpcMetrics,
        eyes: Eyes<For>,
        stop: CancellationToken,
    ) {
        let begin = || self.clone().run_once(calls.clone(), stop.clone());
        // It never ends with an error of its own: others may run in the process.
        let _ = supervise(self.name(), &eyes, &stop, false, begin).await;
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

    /// Serves what it has to say of itself.
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
