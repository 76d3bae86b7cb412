//! `wharf attacher`, also as csi-attacher.

use std::{process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use kube::Client;
use tokio_util::sync::CancellationToken;
use wharf_cli::{FeatureGates, Flag, FlagError, FlagSet, Parsed};
use wharf_facts::lease;
use wharf_reconcile::Backoff;
use wharf_sidecars::{
    Caches,
    attacher::{Attacher, AttacherMetrics, AttacherOptions},
};

use super::{
    controller::Controller,
    driver::Connected,
    flags::{Common, CommonFlags, DriverFlag, RELEASE_ON_EXIT, Retired, retire},
    shell::{self, Sidecar},
};

struct Flags {
    common: CommonFlags,
    driver: DriverFlag,
    timeout: Flag<Duration>,
    worker_threads: Flag<u64>,
    resync: Flag<Duration>,
    reconcile_sync: Flag<Duration>,
    max_entries: Flag<i64>,
    default_fstype: Flag<String>,
    retry_interval_start: Flag<Duration>,
    retry_interval_max: Flag<Duration>,
    node_deployment: Flag<bool>,
}

impl Flags {
    fn register(set: &mut FlagSet) -> Self {
        let gates = FeatureGates::new(&[RELEASE_ON_EXIT]).removed(
            "MutableCSINodeAllocatableCount",
            "the code of an error is always stored with it",
        );
        let flags = Self {
            common: CommonFlags::register(set, gates),
            driver: DriverFlag::register(set),
            timeout: set.duration(
                "timeout",
                Duration::from_secs(15),
                "How long one call to the CSI driver may take.",
            ),
            worker_threads: set.uint(
                "worker-threads",
                10,
                "How many volumes are attached at once, and how many detached.",
            ),
            resync: set.duration(
                "resync",
                Duration::from_mins(10),
                "How often every VolumeAttachment is looked at again, changed or not. 0: never.",
            ),
            reconcile_sync: set.duration(
                "reconcile-sync",
                Duration::from_mins(1),
                "How often attachments are compared with what the CSI driver lists. 0: never.",
            ),
            max_entries: set.int(
                "max-entries",
                0,
                "How many volumes the CSI driver lists per page. 0: as many as it likes.",
            ),
            default_fstype: set.string(
                "default-fstype",
                "",
                "Filesystem of volumes that do not name one.",
            ),
            retry_interval_start: set.duration(
                "retry-interval-start",
                Duration::from_secs(1),
                "Pause after a first failure. It doubles with each further one.",
            ),
            retry_interval_max: set.duration(
                "retry-interval-max",
                Duration::from_mins(5),
                "The longest pause after a failure.",
            ),
            node_deployment: set.bool(
                "node-deployment",
                false,
                "Serve only the node named by NODE_NAME, for drivers that attach on each node.",
            ),
        };
        set.int("max-grpc-log-length", -1, "How much of a message is logged.");
        set.deprecate("max-grpc-log-length", "it is ignored: messages of calls are not logged");
        retire(set, &[("dummy", Retired::Switch, "drivers that do not attach are recognised")]);
        flags
    }

    fn plan(&self, parsed: &Parsed, common: Common) -> Result<Sidecar, FlagError> {
        let mut controller = Attachments(self.options(parsed)?);
        if parsed.get(&self.timeout).is_zero() {
            return Err(parsed.usage_error("--timeout must be longer than 0s"));
        }
        Ok(Sidecar {
            common,
            socket: self.driver.socket(parsed)?,
            timeout: *parsed.get(&self.timeout),
            lease: lease::attacher,
            controller: Box::new(move |registry, queues| {
                controller.0.metrics.register(registry);
                controller.0.queues = Some(queues.clone());
                Arc::new(controller)
            }),
        })
    }

    /// The options for a driver whose name is not known yet.
    fn options(&self, parsed: &Parsed) -> Result<AttacherOptions, FlagError> {
        let workers = usize::try_from(*parsed.get(&self.worker_threads)).unwrap_or(usize::MAX);
        if workers == 0 {
            return Err(parsed.usage_error("--worker-threads must be greater than 0"));
        }
        let max_entries = i32::try_from(*parsed.get(&self.max_entries)).ok();
        let max_entries = max_entries.filter(|count| *count >= 0).ok_or_else(|| {
            parsed.usage_error(format_args!("--max-entries must be between 0 and {}", i32::MAX))
        })?;
        let node = match std::env::var("NODE_NAME") {
            _ if !*parsed.get(&self.node_deployment) => None,
            Ok(name) if !name.is_empty() => Some(name),
            _ => {
                return Err(parsed.usage_error(
                    "--node-deployment needs the node's name in the variable NODE_NAME",
                ));
            }
        };
        Ok(AttacherOptions {
            driver: String::new(),
            node,
            workers,
            backoff: Backoff {
                first: *parsed.get(&self.retry_interval_start),
                max: *parsed.get(&self.retry_interval_max),
            },
            resync: *parsed.get(&self.resync),
            audit: *parsed.get(&self.reconcile_sync),
            audit_timeout: *parsed.get(&self.timeout),
            max_entries,
            default_fs_type: parsed.get(&self.default_fstype).clone(),
            metrics: AttacherMetrics::default(),
            queues: None,
        })
    }
}

/// The attacher for whichever driver is there.
struct Attachments(AttacherOptions);

#[async_trait]
impl Controller for Attachments {
    async fn run(
        &self,
        client: Client,
        driver: Connected,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let caches = Caches::of(&driver.name);
        let options = AttacherOptions { driver: driver.name, ..self.0.clone() };
        let attacher = Attacher::new(options, client.clone(), driver.driver, caches.clone());
        tokio::join!(caches.run(&client, &stop), attacher.run(stop.clone()));
        Ok(())
    }
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let about = "Attaches and detaches volumes: has the CSI driver publish them to the nodes of their pods.";
    let mut set = FlagSet::new(name, about);
    let flags = Flags::register(&mut set);
    shell::main(name, &set, &flags.common, args, |parsed, common| flags.plan(parsed, common))
}
