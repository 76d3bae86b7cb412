//! `wharf snapshotter`, also as csi-snapshotter.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use wharf_cli::{FeatureGates, Flag, FlagError, FlagSet, Parsed};
use wharf_facts::lease;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_sidecars::{
    not_served::Gap,
    snapshotter::{SnapshotNames, Snapshotter, SnapshotterOptions},
};

use super::{
    controller::{Cluster, Controller, MakeController, Scope},
    driver::{ConnectedDriver, DriverSource},
    flags::{
        Common, CommonFlags, DriverFlags, NodeFlag, RELEASE_ON_EXIT, Retired, RetryFlags, retire,
        workers,
    },
    groups::{self, GROUPS},
    runner::{ControllerSpec, Personality},
};
use crate::unserved;

/// Upstream's name.
const PROGRAM: &str = "csi-snapshotter";

pub(super) struct Flags {
    common: CommonFlags,
    driver: DriverFlags,
    worker_threads: Flag<i64>,
    resync_period: Flag<Duration>,
    name_prefix: Flag<String>,
    name_uuid_length: Flag<i64>,
    extra_create_metadata: Flag<bool>,
    retry: RetryFlags,
    node: NodeFlag,
}

impl Personality for Flags {
    const NAME: &'static str = "snapshotter";
    const ABOUT: &'static str =
        "Takes and deletes snapshots: calls the CSI driver for each VolumeSnapshotContent.";
    type Source = DriverSource;

    fn register(set: &mut FlagSet) -> Self {
        retire(
            set,
            &[
                ("snapshotter", Retired::Text, "the CSI driver reports its name"),
                ("create-snapshotcontent-interval", Retired::Time, "use --retry-interval-start"),
                (
                    "create-snapshotcontent-retrycount",
                    Retired::Text,
                    "failed calls are retried without an end",
                ),
            ],
        );
        let gates = unserved::foreign_gates(FeatureGates::new(&[RELEASE_ON_EXIT, GROUPS]), PROGRAM);
        groups::register(set);
        set.string(
            "groupsnapshot-name-prefix",
            "groupsnapshot",
            "Ignored: group snapshots are not built.",
        );
        set.int("groupsnapshot-name-uuid-length", -1, "Ignored: group snapshots are not built.");
        unserved::warn_of(set, PROGRAM);
        Self {
            common: CommonFlags::register(set, gates),
            driver: DriverFlags::register(set, Duration::from_mins(1)),
            worker_threads: set.int(
                "worker-threads",
                10,
                "Workers that take and delete snapshots.",
            ),
            resync_period: set.duration(
                "resync-period",
                Duration::from_mins(15),
                "Interval at which every VolumeSnapshotContent is processed again, changed or not. 0: never.",
            ),
            name_prefix: set.string(
                "snapshot-name-prefix",
                "snapshot",
                "Prefix of the names of snapshots in the CSI driver.",
            ),
            name_uuid_length: set.int(
                "snapshot-name-uuid-length",
                -1,
                "Characters of the VolumeSnapshot's UID in the name of its snapshot, without dashes. -1: all, with dashes.",
            ),
            extra_create_metadata: set.bool(
                "extra-create-metadata",
                false,
                "Pass the names of the VolumeSnapshot and its content to the CSI driver.",
            ),
            retry: RetryFlags::register(set),
            node: NodeFlag::register(set),
        }
    }

    fn common(&self) -> &CommonFlags {
        &self.common
    }

    fn plan(
        &self,
        parsed: &Parsed,
        common: Common,
    ) -> Result<ControllerSpec<DriverSource>, FlagError> {
        let mut controller = Snapshots(self.options(parsed, &common)?);
        let mut driver = self.driver.options(parsed)?;
        driver.node.place = controller.0.node.is_some();
        let make: MakeController = Box::new(move |_, queues| {
            controller.0.queues = Some(queues.clone());
            Arc::new(controller)
        });
        Ok(ControllerSpec::of_driver(Self::NAME, common, driver, lease::snapshotter, make))
    }
}

impl Flags {
    /// The options without the driver's name, which is not known yet.
    fn options(&self, parsed: &Parsed, common: &Common) -> Result<SnapshotterOptions, FlagError> {
        let uid_length = match *parsed.get(&self.name_uuid_length) {
            -1 => None,
            // A UID has 32 characters without its dashes.
            length @ 0..=32 => usize::try_from(length).ok(),
            length => {
                return Err(parsed.usage_error(format_args!(
                    "--snapshot-name-uuid-length={length}: expected -1, or 0 to 32"
                )));
            }
        };
        let prefix = parsed.get(&self.name_prefix).clone();
        if prefix.is_empty() {
            return Err(parsed.usage_error("--snapshot-name-prefix must not be empty"));
        }
        Ok(SnapshotterOptions {
            driver: String::new(),
            node: self.node.name(parsed, common)?,
            workers: workers(parsed, &self.worker_threads)?,
            backoff: self.retry.backoff(parsed),
            resync: *parsed.get(&self.resync_period),
            names: SnapshotNames { prefix, uid_length },
            extra_create_metadata: *parsed.get(&self.extra_create_metadata),
            queues: None,
        })
    }
}

/// Runs the snapshotter for the driver that is connected.
struct Snapshots(SnapshotterOptions);

#[async_trait]
impl Controller for Snapshots {
    async fn run(
        &self,
        Cluster { client, caches, .. }: Cluster,
        driver: ConnectedDriver,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        ensure!(
            driver.capabilities.controller.contains(&rpc::Type::CreateDeleteSnapshot),
            "CSI driver {} cannot take snapshots: it lacks the capability CREATE_DELETE_SNAPSHOT",
            driver.name
        );
        let options = SnapshotterOptions { driver: driver.name, ..self.0.clone() };
        let snapshotter = Snapshotter::new(options, client.clone(), driver.driver, caches.clone());
        snapshotter.run(stop).await;
        Ok(())
    }

    fn scope(&self) -> Scope {
        self.0.node.clone().map_or(Scope::Driver, Scope::Node)
    }

    fn gaps(&self) -> Vec<Gap> {
        vec![Gap::GroupContents]
    }
}
