//! `wharf snapshotter`, also as csi-snapshotter.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::ensure;
use async_trait::async_trait;
use kube::Client;
use tokio_util::sync::CancellationToken;
use wharf_cli::{FeatureGates, Flag, FlagError, FlagSet, Parsed};
use wharf_facts::lease;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_reconcile::Backoff;
use wharf_sidecars::{
    Caches,
    snapshotter::{SnapshotNames, Snapshotter, SnapshotterOptions},
};

use super::{
    controller::Controller,
    driver::Connected,
    flags::{Common, CommonFlags, DriverFlag, RELEASE_ON_EXIT, Retired, retire},
    groups::{self, GROUPS, GroupFlag},
    shell::{self, Sidecar},
};

struct Flags {
    common: CommonFlags,
    groups: GroupFlag,
    driver: DriverFlag,
    timeout: Flag<Duration>,
    worker_threads: Flag<i64>,
    resync_period: Flag<Duration>,
    name_prefix: Flag<String>,
    name_uuid_length: Flag<i64>,
    group_name_prefix: Flag<String>,
    group_name_uuid_length: Flag<i64>,
    extra_create_metadata: Flag<bool>,
    retry_interval_start: Flag<Duration>,
    retry_interval_max: Flag<Duration>,
    node_deployment: Flag<bool>,
}

impl Flags {
    fn register(set: &mut FlagSet) -> Self {
        retire(set, &[("snapshotter", Retired::Text, "the CSI driver says its name")]);
        Self {
            common: CommonFlags::register(set, FeatureGates::new(&[RELEASE_ON_EXIT, GROUPS])),
            groups: GroupFlag::register(set),
            driver: DriverFlag::register(set),
            timeout: set.duration(
                "timeout",
                Duration::from_mins(1),
                "How long one call to the CSI driver may take.",
            ),
            worker_threads: set.int(
                "worker-threads",
                10,
                "How many snapshots are worked on at once.",
            ),
            resync_period: set.duration(
                "resync-period",
                Duration::from_mins(15),
                "How often every VolumeSnapshotContent is looked at again, changed or not. 0: never.",
            ),
            name_prefix: set.string(
                "snapshot-name-prefix",
                "snapshot",
                "What the names of snapshots in the CSI driver begin with.",
            ),
            name_uuid_length: set.int(
                "snapshot-name-uuid-length",
                -1,
                "How many characters of the VolumeSnapshot's UID follow, without dashes. -1: all, with dashes.",
            ),
            group_name_prefix: set.string(
                "groupsnapshot-name-prefix",
                "groupsnapshot",
                "Of group snapshots, which are not served here.",
            ),
            group_name_uuid_length: set.int(
                "groupsnapshot-name-uuid-length",
                -1,
                "Of group snapshots, which are not served here.",
            ),
            extra_create_metadata: set.bool(
                "extra-create-metadata",
                false,
                "Tell the CSI driver what a snapshot is called in the API.",
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
                "Serve only snapshots of the node named by NODE_NAME, for drivers with volumes of one node.",
            ),
        }
    }

    fn plan(&self, parsed: &Parsed, common: Common) -> Result<Sidecar, FlagError> {
        let unsaid = self.groups.refuse(parsed, &self.common.gates)?;
        if parsed.is_changed(&self.group_name_prefix)
            || parsed.is_changed(&self.group_name_uuid_length)
        {
            return Err(parsed.usage_error(
                "--groupsnapshot-name-prefix and --groupsnapshot-name-uuid-length: group snapshots are not served here",
            ));
        }
        let mut controller = Snapshots(self.options(parsed)?);
        if parsed.get(&self.timeout).is_zero() {
            return Err(parsed.usage_error("--timeout must be longer than 0s"));
        }
        if controller.0.node.is_some() && common.election.is_some() {
            return Err(parsed.usage_error(
                "--leader-election cannot be set with --node-deployment: each node works by itself",
            ));
        }
        Ok(Sidecar {
            common,
            socket: self.driver.socket(parsed)?,
            timeout: *parsed.get(&self.timeout),
            lease: lease::snapshotter,
            controller: Box::new(move |_, queues| {
                if unsaid {
                    groups::warn();
                }
                controller.0.queues = Some(queues.clone());
                Arc::new(controller)
            }),
        })
    }

    /// The options for a driver whose name is not known yet.
    fn options(&self, parsed: &Parsed) -> Result<SnapshotterOptions, FlagError> {
        let workers = usize::try_from(*parsed.get(&self.worker_threads)).ok();
        let workers = workers
            .filter(|count| *count > 0)
            .ok_or_else(|| parsed.usage_error("--worker-threads must be greater than 0"))?;
        let uid_length = match *parsed.get(&self.name_uuid_length) {
            -1 => None,
            // As many characters as a UID has.
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
        let node = match std::env::var("NODE_NAME") {
            _ if !*parsed.get(&self.node_deployment) => None,
            Ok(name) if !name.is_empty() => Some(name),
            _ => {
                return Err(parsed.usage_error(
                    "--node-deployment needs the node's name in the variable NODE_NAME",
                ));
            }
        };
        Ok(SnapshotterOptions {
            driver: String::new(),
            node,
            workers,
            backoff: Backoff {
                first: *parsed.get(&self.retry_interval_start),
                max: *parsed.get(&self.retry_interval_max),
            },
            resync: *parsed.get(&self.resync_period),
            names: SnapshotNames { prefix, uid_length },
            extra_create_metadata: *parsed.get(&self.extra_create_metadata),
            queues: None,
        })
    }
}

/// The snapshotter for whichever driver is there.
struct Snapshots(SnapshotterOptions);

#[async_trait]
impl Controller for Snapshots {
    async fn run(
        &self,
        client: Client,
        driver: Connected,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        ensure!(
            driver.capabilities.controller.contains(&rpc::Type::CreateDeleteSnapshot),
            "the CSI driver {} takes no snapshots: it lacks the capability CREATE_DELETE_SNAPSHOT",
            driver.name
        );
        let mut caches = Caches::of(&driver.name);
        if let Some(node) = &self.0.node {
            caches = caches.on_node(&driver.name, node);
        }
        let options = SnapshotterOptions { driver: driver.name, ..self.0.clone() };
        let snapshotter = Snapshotter::new(options, client.clone(), driver.driver, caches.clone());
        tokio::join!(caches.run(&client, &stop), snapshotter.run(stop.clone()));
        Ok(())
    }
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let about =
        "Takes and deletes snapshots: has the CSI driver do what VolumeSnapshotContents ask for.";
    let mut set = FlagSet::new(name, about);
    let flags = Flags::register(&mut set);
    shell::main(name, &set, &flags.common, args, |parsed, common| flags.plan(parsed, common))
}
