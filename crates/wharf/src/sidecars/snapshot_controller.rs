//! `wharf snapshot-controller`, also under that name alone.

use std::{process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use kube::Client;
use tokio_util::sync::CancellationToken;
use wharf_cli::{FeatureGates, Flag, FlagError, FlagSet, Parsed};
use wharf_facts::lease;
use wharf_reconcile::Backoff;
use wharf_sidecars::{
    Caches, crds,
    snapshot_controller::{SnapshotController, SnapshotControllerOptions, SnapshotMetrics},
};

use super::{
    controller::Controller,
    flags::{Common, CommonFlags, RELEASE_ON_EXIT},
    groups::{self, GROUPS, GroupFlag},
    shell::{self, ClusterSidecar},
};

/// The least time that the kinds are waited for.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

struct Flags {
    common: CommonFlags,
    groups: GroupFlag,
    worker_threads: Flag<i64>,
    resync_period: Flag<Duration>,
    retry_interval_start: Flag<Duration>,
    retry_interval_max: Flag<Duration>,
    retry_crd_interval_max: Flag<Duration>,
    distributed: Flag<bool>,
    prevent_volume_mode_conversion: Flag<bool>,
}

impl Flags {
    fn register(set: &mut FlagSet) -> Self {
        Self {
            common: CommonFlags::register(set, FeatureGates::new(&[RELEASE_ON_EXIT, GROUPS])),
            groups: GroupFlag::register(set),
            worker_threads: set.int(
                "worker-threads",
                10,
                "How many snapshots are worked on at once.",
            ),
            resync_period: set.duration(
                "resync-period",
                Duration::from_mins(15),
                "How often every VolumeSnapshot is looked at again, changed or not. 0: never.",
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
            retry_crd_interval_max: set.duration(
                "retry-crd-interval-max",
                Duration::from_secs(30),
                "How long the API may take to serve the kinds of snapshots.",
            ),
            distributed: set.bool(
                "enable-distributed-snapshotting",
                false,
                "Have the snapshotter of a volume's node take its snapshots.",
            ),
            prevent_volume_mode_conversion: set.bool(
                "prevent-volume-mode-conversion",
                true,
                "Write down the mode of a volume, so that claims are not restored in another unasked.",
            ),
        }
    }

    fn plan(&self, parsed: &Parsed, common: Common) -> Result<ClusterSidecar, FlagError> {
        let unsaid = self.groups.refuse(parsed, &self.common.gates)?;
        let mut controller = Snapshots {
            options: self.options(parsed)?,
            patience: (*parsed.get(&self.retry_crd_interval_max)).max(LEAST_PATIENCE),
        };
        Ok(ClusterSidecar {
            common,
            lease: lease::SNAPSHOT_CONTROLLER,
            controller: Box::new(move |registry, queues| {
                if unsaid {
                    groups::warn();
                }
                controller.options.metrics.register(registry);
                controller.options.queues = Some(queues.clone());
                Arc::new(controller)
            }),
        })
    }

    fn options(&self, parsed: &Parsed) -> Result<SnapshotControllerOptions, FlagError> {
        let workers = usize::try_from(*parsed.get(&self.worker_threads)).ok();
        let workers = workers
            .filter(|count| *count > 0)
            .ok_or_else(|| parsed.usage_error("--worker-threads must be greater than 0"))?;
        Ok(SnapshotControllerOptions {
            workers,
            backoff: Backoff {
                first: *parsed.get(&self.retry_interval_start),
                max: *parsed.get(&self.retry_interval_max),
            },
            resync: *parsed.get(&self.resync_period),
            distributed: *parsed.get(&self.distributed),
            keep_volume_mode: *parsed.get(&self.prevent_volume_mode_conversion),
            metrics: SnapshotMetrics::default(),
            queues: None,
        })
    }
}

/// The snapshot controller, once its kinds are served.
struct Snapshots {
    options: SnapshotControllerOptions,
    patience: Duration,
}

#[async_trait]
impl Controller<()> for Snapshots {
    async fn run(&self, client: Client, (): (), stop: CancellationToken) -> anyhow::Result<()> {
        let served = crds::wait_until_served(&client, self.patience);
        match stop.run_until_cancelled(served).await {
            None => return Ok(()),
            Some(served) => served?,
        }
        let caches = Caches::of_all_drivers();
        let options = self.options.clone();
        let controller = SnapshotController::new(options, client.clone(), caches.clone());
        tokio::join!(caches.run(&client, &stop), controller.run(stop.clone()));
        Ok(())
    }
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let about =
        "Binds VolumeSnapshots to VolumeSnapshotContents, for all CSI drivers of a cluster.";
    let mut set = FlagSet::new(name, about);
    let flags = Flags::register(&mut set);
    shell::main(name, &set, &flags.common, args, |parsed, common| flags.plan(parsed, common))
}
