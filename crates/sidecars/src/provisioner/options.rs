use std::time::Duration;

use wharf_reconcile::{Backoff, Config, WorkqueueMetrics};

use super::{ProvisionerMetrics, TopologyOptions, UnsettledVolumes, VolumeNames};

/// How a [`Provisioner`](super::Provisioner) works; the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct ProvisionerOptions {
    /// The driver's name, which claims call their provisioner.
    pub driver: String,
    /// Only claims and volumes of this node are worked on, for a driver whose controller runs on each node.
    pub node: Option<String>,
    /// How many volumes are made at a time, and how many deleted.
    pub workers: usize,
    /// How many claims are let go at a time after they were cloned.
    pub protection_workers: usize,
    /// The waits after failures of one claim or volume. The longest is also the wait after a failure that the driver calls
    /// a mistake.
    pub backoff: Backoff,
    /// How often all objects are looked at without a reason; zero is never.
    pub resync: Duration,
    /// How volumes are named.
    pub names: VolumeNames,
    /// How the driver is told of places.
    pub topology: TopologyOptions,
    /// The filesystem of volumes whose class names none; empty leaves it to others.
    pub default_fs_type: String,
    /// Tell the driver the names of claim and volume.
    pub extra_metadata: bool,
    /// Volumes that are for readers only are attached read-only.
    pub read_only_for_readers: bool,
    /// A snapshot of a filesystem becomes a raw device, or the reverse, only with permission.
    pub guards_volume_mode: bool,
    /// Volumes are made with the attributes that their claims name a class for.
    pub attributes_classes: bool,
    /// How often snapshots are looked for that were held too long; zero is never.
    pub sweep: Duration,
    /// How often the driver's volumes are listed and compared with the cluster's; zero is never.
    pub leftovers: Duration,
    /// A claim is marked when the driver has worked on its volume for so long: if the claim is deleted then, or this process
    /// killed, the next leader knows.
    pub mark_after: Duration,
    /// What the process knows of volumes without a final answer; shared by all of its terms as leader and between them.
    pub unsettled: UnsettledVolumes,
    /// The host's name, for events.
    pub host: String,
    /// Where is counted what was made and deleted.
    pub metrics: ProvisionerMetrics,
    /// Where the queues are counted and timed, if someone asks.
    pub queues: Option<WorkqueueMetrics>,
}

impl ProvisionerOptions {
    /// The defaults for a driver.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            node: None,
            workers: 100,
            protection_workers: 1,
            backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_mins(5) },
            resync: Duration::from_mins(15),
            names: VolumeNames::default(),
            topology: TopologyOptions::default(),
            default_fs_type: String::new(),
            extra_metadata: false,
            read_only_for_readers: false,
            guards_volume_mode: true,
            attributes_classes: true,
            sweep: Duration::from_mins(5),
            leftovers: Duration::ZERO,
            mark_after: Duration::from_secs(5),
            unsettled: UnsettledVolumes::default(),
            host: String::new(),
            metrics: ProvisionerMetrics::default(),
            queues: None,
        }
    }

    /// How a queue works.
    pub(super) fn queue(&self, name: &'static str, parallelism: usize) -> Config {
        let metrics = self.queues.as_ref().map(|queues| queues.queue(name));
        Config { name, parallelism, backoff: self.backoff, metrics }
    }
}
