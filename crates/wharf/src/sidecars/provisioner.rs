//! `wharf provisioner`, also as csi-provisioner.

mod capacity;
mod node;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use kube::Client;
use tokio_util::sync::CancellationToken;
use wharf_cli::{Dialect, FeatureGates, Flag, FlagError, FlagSet, Gate, Parsed, Stage};
use wharf_facts::lease;
use wharf_reconcile::Backoff;
use wharf_sidecars::{
    Caches,
    provisioner::{
        Provisioner, ProvisionerMetrics, ProvisionerOptions, TopologyOptions, VolumeNames,
    },
};

use self::{
    capacity::{CapacityFlags, CapacityPlan},
    node::NodeFlags,
};
use super::{
    controller::Controller,
    driver::Connected,
    flags::{Common, CommonFlags, DriverFlag, RELEASE_ON_EXIT, Retired, retire},
    shell::{self, Sidecar},
};

const TOPOLOGY: Gate = Gate::new("Topology", Stage::Ga, true);
const ATTRIBUTES_CLASS: Gate = Gate::new("VolumeAttributesClass", Stage::Ga, true);
const CROSS_NAMESPACE: Gate = Gate::new("CrossNamespaceVolumeDataSource", Stage::Alpha, false);

/// How many characters a UID has without its dashes.
const UID_LENGTH: i64 = 32;

struct Flags {
    common: CommonFlags,
    driver: DriverFlag,
    timeout: Flag<Duration>,
    worker_threads: Flag<u64>,
    protection_threads: Flag<u64>,
    retry_interval_start: Flag<Duration>,
    retry_interval_max: Flag<Duration>,
    volume_name_prefix: Flag<String>,
    volume_name_uuid_length: Flag<i64>,
    strict_topology: Flag<bool>,
    immediate_topology: Flag<bool>,
    extra_create_metadata: Flag<bool>,
    default_fstype: Flag<String>,
    controller_publish_readonly: Flag<bool>,
    prevent_volume_mode_conversion: Flag<bool>,
    snapshot_orphan_sweep_interval: Flag<Duration>,
    master: Flag<String>,
    capacity: CapacityFlags,
    node: NodeFlags,
}

impl Flags {
    fn register(set: &mut FlagSet) -> Self {
        let gates =
            FeatureGates::new(&[TOPOLOGY, ATTRIBUTES_CLASS, CROSS_NAMESPACE, RELEASE_ON_EXIT])
                .removed("HonorPVReclaimPolicy", "the reclaim policy is always honoured")
                .removed(
                    "CSINodeExpandSecret",
                    "secrets for the node's part of a growth are always passed on",
                );
        let flags = Self {
            common: CommonFlags::register(set, gates),
            driver: DriverFlag::register(set),
            timeout: set.duration(
                "timeout",
                Duration::from_secs(10),
                "How long one call to the CSI driver may take.",
            ),
            worker_threads: set.uint(
                "worker-threads",
                100,
                "How many volumes are made at once, and how many deleted.",
            ),
            protection_threads: set.uint(
                "cloning-protection-threads",
                1,
                "How many cloned claims are let go at once.",
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
            volume_name_prefix: set.string(
                "volume-name-prefix",
                "pvc",
                "What names of volumes begin with.",
            ),
            volume_name_uuid_length: set.int(
                "volume-name-uuid-length",
                -1,
                "How much of the claim's UID is in the name of its volume. -1: all of it.",
            ),
            strict_topology: set.bool(
                "strict-topology",
                false,
                "Ask for volumes in the place of the selected node only, and not in all others as well.",
            ),
            immediate_topology: set.bool(
                "immediate-topology",
                true,
                "Where no node is selected, ask for volumes in all places of the cluster, and not just anywhere.",
            ),
            extra_create_metadata: set.bool(
                "extra-create-metadata",
                false,
                "Tell the CSI driver the names of claim and volume.",
            ),
            default_fstype: set.string(
                "default-fstype",
                "",
                "Filesystem of volumes whose StorageClass does not name one.",
            ),
            controller_publish_readonly: set.bool(
                "controller-publish-readonly",
                false,
                "Attach volumes read-only whose claim is for readers only.",
            ),
            prevent_volume_mode_conversion: set.bool(
                "prevent-volume-mode-conversion",
                true,
                "Restore snapshots in another volume mode only where they are marked for it.",
            ),
            snapshot_orphan_sweep_interval: set.duration(
                "snapshot-orphan-sweep-interval",
                Duration::from_mins(5),
                "How often snapshots are let go that nothing is restored from any more. 0: never.",
            ),
            master: set.string("master", "", "Not supported: name the server in --kubeconfig."),
            capacity: CapacityFlags::register(set),
            node: NodeFlags::register(set),
        };
        set.bool("enable-pprof", false, "Of Go's runtime.");
        set.deprecate("enable-pprof", "it is ignored: there is no Go runtime here");
        retire(
            set,
            &[
                ("provisioner", Retired::Text, "the CSI driver says its name itself"),
                ("enable-leader-election", Retired::Switch, "use --leader-election"),
            ],
        );
        flags
    }

    fn plan(&self, parsed: &Parsed, mut common: Common) -> Result<Sidecar, FlagError> {
        if !parsed.get(&self.master).is_empty() {
            return Err(parsed.usage_error(
                "--master is not supported: name the server in the file of --kubeconfig",
            ));
        }
        if parsed.get(&self.common.gates).enabled(&CROSS_NAMESPACE) {
            return Err(parsed.usage_error(
                "--feature-gates=CrossNamespaceVolumeDataSource=true: sources of other namespaces are not supported",
            ));
        }
        if parsed.get(&self.timeout).is_zero() {
            return Err(parsed.usage_error("--timeout must be longer than 0s"));
        }
        if let Some(file) = variable("KUBECONFIG") {
            common.kubeconfig = Some(PathBuf::from(file));
        }
        let mut controller = Volumes {
            options: self.options(parsed)?,
            capacity: self.capacity.plan(parsed)?,
            kubeconfig: common.kubeconfig.clone(),
        };
        Ok(Sidecar {
            common,
            socket: self.driver.socket(parsed)?,
            timeout: *parsed.get(&self.timeout),
            lease: lease::provisioner,
            controller: Box::new(move |registry, queues| {
                controller.options.metrics.register(registry);
                controller.options.queues = Some(queues.clone());
                Arc::new(controller)
            }),
        })
    }

    /// The options for a driver whose name is not known yet.
    fn options(&self, parsed: &Parsed) -> Result<ProvisionerOptions, FlagError> {
        let gates = parsed.get(&self.common.gates);
        let uid_length = *parsed.get(&self.volume_name_uuid_length);
        if !(-1..=UID_LENGTH).contains(&uid_length) {
            return Err(parsed.usage_error(format_args!(
                "--volume-name-uuid-length must be -1, or between 0 and {UID_LENGTH}"
            )));
        }
        Ok(ProvisionerOptions {
            node: self.node.name(parsed)?,
            workers: threads(parsed, &self.worker_threads)?,
            protection_workers: threads(parsed, &self.protection_threads)?,
            backoff: Backoff {
                first: *parsed.get(&self.retry_interval_start),
                max: *parsed.get(&self.retry_interval_max),
            },
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
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            metrics: ProvisionerMetrics::default(),
            queues: None,
            ..ProvisionerOptions::new("")
        })
    }
}

/// How many things are done at once.
fn threads(parsed: &Parsed, flag: &Flag<u64>) -> Result<usize, FlagError> {
    match usize::try_from(*parsed.get(flag)).unwrap_or(usize::MAX) {
        0 => Err(parsed.usage_error(format_args!("--{} must be greater than 0", flag.name()))),
        threads => Ok(threads),
    }
}

/// A variable of the environment that says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The provisioner for whichever driver is there.
struct Volumes {
    options: ProvisionerOptions,
    capacity: Option<CapacityPlan>,
    kubeconfig: Option<PathBuf>,
}

#[async_trait]
impl Controller for Volumes {
    async fn run(
        &self,
        client: Client,
        driver: Connected,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        if self.options.node.is_some() {
            tracing::warn!(
                "claims that do not wait for their first consumer are left alone: distributed immediate binding is not supported"
            );
        }
        let caches = Caches::of(&driver.name);
        let options = ProvisionerOptions { driver: driver.name, ..self.options.clone() };
        let mut provisioner =
            Provisioner::new(options, client.clone(), driver.driver, caches.clone());
        if let Some(capacity) = &self.capacity {
            let client = match capacity.throttle {
                Some(throttle) => {
                    wharf_cluster::connect_throttled(self.kubeconfig.as_deref(), throttle).await?
                }
                None => client.clone(),
            };
            provisioner = provisioner.telling_capacity(capacity.options.clone(), client);
        }
        tokio::join!(caches.run(&client, &stop), provisioner.run(stop.clone()));
        Ok(())
    }
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let about = "Makes volumes for claims and deletes released ones: has the CSI driver do it, and writes PersistentVolumes.";
    let mut set = FlagSet::new(name, about).dialect(Dialect::Pflag);
    let flags = Flags::register(&mut set);
    shell::main(name, &set, &flags.common, args, |parsed, common| flags.plan(parsed, common))
}
