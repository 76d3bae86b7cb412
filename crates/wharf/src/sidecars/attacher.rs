//! `wharf attacher`, also as csi-attacher.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use wharf_cli::{FeatureGates, Flag, FlagError, FlagSet, Gate, Parsed, Stage};
use wharf_facts::lease;
use wharf_sidecars::{
    attacher::{Attacher, AttacherMetrics, AttacherOptions},
    not_served::Gap,
};

use super::{
    controller::{Cluster, Controller, MakeController},
    driver::{ConnectedDriver, DriverSource},
    flags::{
        Common, CommonFlags, DriverFlags, NodeFlag, RELEASE_ON_EXIT, Retired, RetryFlags, retire,
        workers,
    },
    runner::{ControllerSpec, Personality},
};
use crate::unserved;

/// Upstream's name.
const PROGRAM: &str = "csi-attacher";

/// Stores the gRPC code of an attachment's error. Always on here.
const ERROR_CODES: Gate = Gate::new("MutableCSINodeAllocatableCount", Stage::Ga, true).fixed();

pub(super) struct Flags {
    common: CommonFlags,
    driver: DriverFlags,
    worker_threads: Flag<u64>,
    resync: Flag<Duration>,
    reconcile_sync: Flag<Duration>,
    max_entries: Flag<i64>,
    default_fstype: Flag<String>,
    max_grpc_log_length: Flag<i64>,
    retry: RetryFlags,
    node: NodeFlag,
}

impl Personality for Flags {
    const NAME: &'static str = "attacher";
    const ABOUT: &'static str =
        "Attaches and detaches volumes: calls the CSI driver for each VolumeAttachment.";
    type Source = DriverSource;

    fn register(set: &mut FlagSet) -> Self {
        let gates = FeatureGates::new(&[RELEASE_ON_EXIT, ERROR_CODES]);
        let gates = unserved::foreign_gates(gates, PROGRAM);
        let flags = Self {
            common: CommonFlags::register(set, gates),
            driver: DriverFlags::register(set, Duration::from_secs(15)),
            worker_threads: set.uint(
                "worker-threads",
                10,
                "Workers that attach volumes, and as many that detach them.",
            ),
            resync: set.duration(
                "resync",
                Duration::from_mins(10),
                "Interval at which every VolumeAttachment is processed again, changed or not. 0: never.",
            ),
            reconcile_sync: set.duration(
                "reconcile-sync",
                Duration::from_mins(1),
                "Interval at which VolumeAttachments are compared with the CSI driver's list of volumes. 0: never.",
            ),
            max_entries: set.int(
                "max-entries",
                0,
                "Volumes per page of the CSI driver's list. 0: the driver decides.",
            ),
            default_fstype: set.string(
                "default-fstype",
                "",
                "Filesystem of volumes that do not name one.",
            ),
            max_grpc_log_length: set.int(
                "max-grpc-log-length",
                -1,
                "Bytes logged of each answer of the CSI driver, with -v=5 or more. 0 or less: 8 KiB.",
            ),
            retry: RetryFlags::register(set),
            node: NodeFlag::register(set),
        };
        unserved::warn_of(set, PROGRAM);
        retire(
            set,
            &[("dummy", Retired::Switch, "drivers without ControllerPublishVolume are detected")],
        );
        flags
    }

    fn common(&self) -> &CommonFlags {
        &self.common
    }

    fn plan(
        &self,
        parsed: &Parsed,
        common: Common,
    ) -> Result<ControllerSpec<DriverSource>, FlagError> {
        let logged = usize::try_from(*parsed.get(&self.max_grpc_log_length)).ok();
        let logged = logged.filter(|bytes| *bytes > 0);
        let mut controller = Attachments { options: self.options(parsed, &common)?, logged };
        let mut driver = self.driver.options(parsed)?;
        driver.node.place = controller.options.node.is_some();
        let make: MakeController = Box::new(move |registry, queues| {
            controller.options.metrics.register(registry);
            controller.options.queues = Some(queues.clone());
            Arc::new(controller)
        });
        Ok(ControllerSpec::of_driver(Self::NAME, common, driver, lease::attacher, make))
    }
}

impl Flags {
    /// The options without the driver's name, which is not known yet.
    fn options(&self, parsed: &Parsed, common: &Common) -> Result<AttacherOptions, FlagError> {
        let max_entries = i32::try_from(*parsed.get(&self.max_entries)).ok();
        let max_entries = max_entries.filter(|count| *count >= 0).ok_or_else(|| {
            parsed.usage_error(format_args!("--max-entries must be between 0 and {}", i32::MAX))
        })?;
        Ok(AttacherOptions {
            driver: String::new(),
            node: self.node.name(parsed, common)?,
            workers: workers(parsed, &self.worker_threads)?,
            backoff: self.retry.backoff(parsed),
            resync: *parsed.get(&self.resync),
            audit: *parsed.get(&self.reconcile_sync),
            audit_timeout: self.driver.options(parsed)?.timeout,
            max_entries,
            default_fs_type: parsed.get(&self.default_fstype).clone(),
            metrics: AttacherMetrics::default(),
            queues: None,
        })
    }
}

/// Runs the attacher for the driver that is connected.
struct Attachments {
    options: AttacherOptions,
    /// Bytes logged of each answer of the driver; `None` for the default.
    logged: Option<usize>,
}

#[async_trait]
impl Controller for Attachments {
    async fn run(
        &self,
        Cluster { client, caches, .. }: Cluster,
        ConnectedDriver { driver, name, .. }: ConnectedDriver,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let options = AttacherOptions { driver: name, ..self.options.clone() };
        let driver = match self.logged {
            Some(bytes) => driver.with_logged_answers(bytes),
            None => driver,
        };
        let attacher = Attacher::new(options, client.clone(), driver, caches.clone());
        attacher.run(stop).await;
        Ok(())
    }

    fn gaps(&self) -> Vec<Gap> {
        vec![Gap::InTreeVolumes]
    }
}
