//! `wharf provisioner`, also as csi-provisioner.

mod capacity;
mod node;

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use wharf_cli::{Dialect, FeatureGates, Flag, FlagError, FlagSet, Gate, Parsed, Stage};
use wharf_cluster::{Access, writing_until};
use wharf_facts::lease;
use wharf_sidecars::{
    not_served::Gap,
    provisioner::{
        Provisioner, ProvisionerMetrics, ProvisionerOptions, StandbyProvisioner, TopologyOptions,
        VolumeNames,
    },
};

use self::{
    capacity::{CapacityFlags, CapacityPlan},
    node::NodeFlags,
};
use super::{
    controller::{Cluster, Controller, MakeController, StandbyWork},
    driver::{ConnectedDriver, DriverSource},
    flags::{
        Common, CommonFlags, DriverFlags, MasterFlag, RELEASE_ON_EXIT, Retired, RetryFlags, retire,
        variable, workers,
    },
    runner::{ControllerSpec, Personality},
};
use crate::unserved;

/// Upstream's name.
const PROGRAM: &str = "csi-provisioner";

const TOPOLOGY: Gate = Gate::new("Topology", Stage::Ga, true);
const ATTRIBUTES_CLASS: Gate = Gate::new("VolumeAttributesClass", Stage::Ga, true);
const CROSS_NAMESPACE: Gate =
    Gate::new("CrossNamespaceVolumeDataSource", Stage::Alpha, false).fixed();

/// Characters of a UID without its dashes.
const UID_LENGTH: i64 = 32;

pub(super) struct Flags {
    common: CommonFlags,
    driver: DriverFlags,
    worker_threads: Flag<u64>,
    protection_threads: Flag<u64>,
    retry: RetryFlags,
    volume_name_prefix: Flag<String>,
    volume_name_uuid_length: Flag<i64>,
    strict_topology: Flag<bool>,
    immediate_topology: Flag<bool>,
    extra_create_metadata: Flag<bool>,
    default_fstype: Flag<String>,
    controller_publish_readonly: Flag<bool>,
    prevent_volume_mode_conversion: Flag<bool>,
    snapshot_orphan_sweep_interval: Flag<Duration>,
    leftover_check_interval: Flag<Duration>,
    master: MasterFlag,
    capacity: CapacityFlags,
    node: NodeFlags,
}

impl Personality for Flags {
    const NAME: &'static str = "provisioner";
    const ABOUT: &'static str = "Creates a volume and a PersistentVolume for each claim, and deletes released volumes: calls the CSI driver for both.";
    const DIALECT: Dialect = Dialect::Pflag;
    type Source = DriverSource;

    fn register(set: &mut FlagSet) -> Self {
        let gates =
            FeatureGates::new(&[TOPOLOGY, ATTRIBUTES_CLASS, CROSS_NAMESPACE, RELEASE_ON_EXIT])
                .removed("HonorPVReclaimPolicy", "the reclaim policy is always honoured")
                .removed(
                    "CSINodeExpandSecret",
                    "secrets for NodeExpandVolume are always written to PersistentVolumes",
                );
        let gates = unserved::foreign_gates(gates, PROGRAM);
        let flags = Self {
            common: CommonFlags::register(set, gates),
            driver: DriverFlags::register(set, Duration::from_secs(10)),
            worker_threads: set.uint(
                "worker-threads",
                100,
                "Workers that create volumes, and as many that delete them.",
            ),
            protection_threads: set.uint(
                "cloning-protection-threads",
                1,
                "Workers that remove clone-protection finalizers.",
            ),
            retry: RetryFlags::register(set),
            volume_name_prefix: set.string(
                "volume-name-prefix",
                "pvc",
                "Prefix of the names of volumes.",
            ),
            volume_name_uuid_length: set.int(
                "volume-name-uuid-length",
                -1,
                "Characters of the claim's UID in the name of its volume, without dashes. -1: all, with dashes.",
            ),
            strict_topology: set.bool(
                "strict-topology",
                false,
                "Request volumes in the topology of the selected node only, and not in all others as well.",
            ),
            immediate_topology: set.bool(
                "immediate-topology",
                true,
                "Request volumes in the topologies of the cluster's nodes if no node is selected. false: without a topology.",
            ),
            extra_create_metadata: set.bool(
                "extra-create-metadata",
                false,
                "Pass the names of the claim and the PersistentVolume to the CSI driver.",
            ),
            default_fstype: set.string(
                "default-fstype",
                "",
                "Filesystem of volumes whose StorageClass does not name one.",
            ),
            controller_publish_readonly: set.bool(
                "controller-publish-readonly",
                false,
                "Attach a volume read-only if its claim's access mode is ReadOnlyMany alone.",
            ),
            prevent_volume_mode_conversion: set.bool(
                "prevent-volume-mode-conversion",
                true,
                "Restore a snapshot in another volume mode only if its content allows it by annotation.",
            ),
            snapshot_orphan_sweep_interval: set.duration(
                "snapshot-orphan-sweep-interval",
                Duration::from_mins(5),
                "Interval at which finalizers are removed from snapshots that no claim is restored from any more. 0: never.",
            ),
            leftover_check_interval: set.duration(
                "leftover-check-interval",
                Duration::ZERO,
                "Interval at which volumes of the CSI driver (ListVolumes) that no PersistentVolume names are logged and \
                 counted. 0: never.",
            ),
            master: MasterFlag::register(set),
            capacity: CapacityFlags::register(set),
            node: NodeFlags::register(set),
        };
        set.bool("enable-pprof", false, "Ignored: the process has no Go runtime.");
        unserved::warn_of(set, PROGRAM);
        retire(
            set,
            &[
                ("provisioner", Retired::Text, "the CSI driver reports its name"),
                ("enable-leader-election", Retired::Switch, "use --leader-election"),
                ("capacity-controller-deployment-mode", Retired::Text, "use --enable-capacity"),
            ],
        );
        flags
    }

    fn common(&self) -> &CommonFlags {
        &self.common
    }

    fn plan(
        &self,
        parsed: &Parsed,
        mut common: Common,
    ) -> Result<ControllerSpec<DriverSource>, FlagError> {
        if let Some(file) = variable("KUBECONFIG") {
            common.access = Access::new(Some(PathBuf::from(file)));
        }
        common.access = self.master.access(parsed, common.access)?;
        let mut controller = Volumes {
            options: self.options(parsed, &common)?,
            capacity: self.capacity.plan(parsed)?,
            access: common.access.clone(),
        };
        let mut driver = self.driver.options(parsed)?;
        // The claim gets its finalizer before the call can time out.
        let options = &mut controller.options;
        options.mark_after = options.mark_after.min(driver.timeout / 2);
        driver.node.place = controller.options.node.is_some();
        let make: MakeController = Box::new(move |registry, queues| {
            controller.options.metrics.register(registry);
            controller.options.unsettled.register(registry);
            controller.options.queues = Some(queues.clone());
            Arc::new(controller)
        });
        Ok(ControllerSpec::of_driver(Self::NAME, common, driver, lease::provisioner, make))
    }
}

impl Flags {
    /// The options without the driver's name, which is not known yet.
    fn options(&self, parsed: &Parsed, common: &Common) -> Result<ProvisionerOptions, FlagError> {
        let gates = parsed.get(&self.common.gates);
        let uid_length = *parsed.get(&self.volume_name_uuid_length);
        if !(-1..=UID_LENGTH).contains(&uid_length) {
            return Err(parsed.usage_error(format_args!(
                "--volume-name-uuid-length must be -1, or between 0 and {UID_LENGTH}"
            )));
        }
        Ok(ProvisionerOptions {
            node: self.node.name(parsed, common)?,
            workers: workers(parsed, &self.worker_threads)?,
            protection_workers: workers(parsed, &self.protection_threads)?,
            backoff: self.retry.backoff(parsed),
            names: VolumeNames {
                prefix: parsed.get(&self.volume_name_prefix).clone(),
                uid_length: usize::try_from(uid_length).ok(),
            },
            topology: TopologyOptions {
                enabled: gates.enabled(&TOPOLOGY),
                strict: *parsed.get(&self.strict_topology),
                immediate: *parsed.get(&self.immediate_topology),
            },
            default_fs_type: parsed.get(&self.default_fstype).clone(),
            extra_metadata: *parsed.get(&self.extra_create_metadata),
            read_only_for_readers: *parsed.get(&self.controller_publish_readonly),
            guards_volume_mode: *parsed.get(&self.prevent_volume_mode_conversion),
            attributes_classes: gates.enabled(&ATTRIBUTES_CLASS),
            sweep: *parsed.get(&self.snapshot_orphan_sweep_interval),
            leftovers: *parsed.get(&self.leftover_check_interval),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            metrics: ProvisionerMetrics::default(),
            queues: None,
            ..ProvisionerOptions::new("")
        })
    }
}

/// Runs the provisioner for the driver that is connected.
struct Volumes {
    options: ProvisionerOptions,
    capacity: Option<CapacityPlan>,
    access: Access,
}

#[async_trait]
impl Controller for Volumes {
    async fn run(
        &self,
        Cluster { client, caches, permissions, writes_until }: Cluster,
        driver: ConnectedDriver,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let options = ProvisionerOptions { driver: driver.name, ..self.options.clone() };
        let mut provisioner =
            Provisioner::new(options, client.clone(), driver.driver, caches.clone());
        if let Some(capacity) = &self.capacity {
            let client = match capacity.throttle {
                Some(_) => {
                    let own = self.access.client_of(&permissions, capacity.throttle).await?;
                    writes_until.map_or(own.clone(), |until| writing_until(&own, until))
                }
                None => client.clone(),
            };
            provisioner = provisioner.telling_capacity(capacity.options.clone(), client);
        }
        provisioner.run(stop).await;
        Ok(())
    }

    fn gaps(&self) -> Vec<Gap> {
        match self.options.node {
            Some(_) => vec![Gap::InTreeVolumes, Gap::ImmediateClaims],
            None => vec![Gap::InTreeVolumes],
        }
    }

    fn stand_by(
        &self,
        Cluster { client, caches, .. }: Cluster,
        driver: ConnectedDriver,
        stop: CancellationToken,
    ) -> Option<StandbyWork> {
        // The provisioner of another node serves that node's claims.
        if self.options.node.is_some() {
            return None;
        }
        let options = ProvisionerOptions { driver: driver.name, ..self.options.clone() };
        Some(Box::pin(StandbyProvisioner::new(options, client, caches).run(stop)))
    }
}
