//! `wharf snapshot-controller`, also under that name alone.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use wharf_cli::{FeatureGates, Flag, FlagError, FlagSet, Parsed};
use wharf_facts::lease;
use wharf_sidecars::{
    crds,
    not_served::Gap,
    snapshot_controller::{SnapshotController, SnapshotControllerOptions, SnapshotMetrics},
};

use super::{
    controller::{Cluster, ClusterSource, Controller, Scope},
    flags::{Common, CommonFlags, RELEASE_ON_EXIT, RetryFlags, workers},
    groups::{self, GROUPS},
    runner::{ControllerSpec, Personality},
};
use crate::unserved;

/// Upstream's name.
const PROGRAM: &str = "snapshot-controller";

/// The shortest wait for the snapshot CRDs.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Flags {
    common: CommonFlags,
    worker_threads: Flag<i64>,
    resync_period: Flag<Duration>,
    retry: RetryFlags,
    retry_crd_interval_max: Flag<Duration>,
    distributed: Flag<bool>,
    prevent_volume_mode_conversion: Flag<bool>,
}

impl Personality for Flags {
    const NAME: &'static str = "snapshot-controller";
    const ABOUT: &'static str =
        "Binds VolumeSnapshots to VolumeSnapshotContents, for all CSI drivers of a cluster.";
    type Source = ClusterSource;

    fn register(set: &mut FlagSet) -> Self {
        let gates = unserved::foreign_gates(FeatureGates::new(&[RELEASE_ON_EXIT, GROUPS]), PROGRAM);
        groups::register(set);
        unserved::warn_of(set, PROGRAM);
        Self {
            common: CommonFlags::register(set, gates),
            worker_threads: set.int(
                "worker-threads",
                10,
                "Workers that process VolumeSnapshots.",
            ),
            resync_period: set.duration(
                "resync-period",
                Duration::from_mins(15),
                "Interval at which every VolumeSnapshot is processed again, changed or not. 0: never.",
            ),
            retry: RetryFlags::register(set),
            retry_crd_interval_max: set.duration(
                "retry-crd-interval-max",
                Duration::from_secs(30),
                "Time for which the controller waits at its start until the API serves the snapshot CRDs.",
            ),
            distributed: set.bool(
                "enable-distributed-snapshotting",
                false,
                "Mark each snapshot with its volume's node, so that the snapshotter of that node takes it.",
            ),
            prevent_volume_mode_conversion: set.bool(
                "prevent-volume-mode-conversion",
                true,
                "Record the source volume's mode on each content, so that a restore in another mode can be refused.",
            ),
        }
    }

    fn common(&self) -> &CommonFlags {
        &self.common
    }

    fn plan(
        &self,
        parsed: &Parsed,
        common: Common,
    ) -> Result<ControllerSpec<ClusterSource>, FlagError> {
        let mut controller = Snapshots {
            options: self.options(parsed)?,
            patience: (*parsed.get(&self.retry_crd_interval_max)).max(LEAST_PATIENCE),
        };
        Ok(ControllerSpec {
            name: Self::NAME,
            common,
            source: (),
            lease: Box::new(|()| lease::SNAPSHOT_CONTROLLER.to_owned()),
            controller: Box::new(move |registry, queues| {
                controller.options.metrics.register(registry);
                controller.options.queues = Some(queues.clone());
                Arc::new(controller)
            }),
        })
    }
}

impl Flags {
    fn options(&self, parsed: &Parsed) -> Result<SnapshotControllerOptions, FlagError> {
        Ok(SnapshotControllerOptions {
            workers: workers(parsed, &self.worker_threads)?,
            backoff: self.retry.backoff(parsed),
            resync: *parsed.get(&self.resync_period),
            distributed: *parsed.get(&self.distributed),
            keep_volume_mode: *parsed.get(&self.prevent_volume_mode_conversion),
            metrics: SnapshotMetrics::default(),
            queues: None,
        })
    }
}

/// Runs the snapshot controller once the API serves its CRDs.
struct Snapshots {
    options: SnapshotControllerOptions,
    patience: Duration,
}

#[async_trait]
impl Controller<()> for Snapshots {
    async fn run(
        &self,
        Cluster { client, caches, .. }: Cluster,
        (): (),
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let served = crds::wait_until_served(&client, self.patience);
        match stop.run_until_cancelled(served).await {
            None => return Ok(()),
            Some(served) => served?,
        }
        let options = self.options.clone();
        let controller = SnapshotController::new(options, client.clone(), caches.clone());
        controller.run(stop).await;
        Ok(())
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn gaps(&self) -> Vec<Gap> {
        vec![Gap::GroupSnapshots]
    }
}
