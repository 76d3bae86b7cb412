use std::time::Duration;

use wharf_reconcile::{Backoff, Config, WorkqueueMetrics};

use super::{ProvisionerMetrics, TopologyOptions, UnsettledVolumes, VolumeNames};

/// Settings of a [`Provisioner`](super::Provisioner); the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct ProvisionerOptions {
    /// The driver's name, which claims name as their provisioner.
    pub driver: String,
    /// Serve only claims and volumes of this node, for a driver whose controller runs on each node.
    pub node: Option<String>,
    /// Concurrent creations of volumes, and as many deletions.
    pub workers: usize,
    /// Workers that remove clone-protection finalizers.
    pub protection_workers: usize,
    /// The back-off of one claim or volume. Its maximum is also the pause after a failure that the
    /// driver reports as infeasible.
    pub backoff: Backoff,
    /// How often all objects are queued without a trigger; never if zero.
    pub resync: Duration,
    /// How volumes are named.
    pub names: VolumeNames,
    /// The topology settings of requests.
    pub topology: TopologyOptions,
    /// The filesystem of volumes whose class names none; empty leaves it to the driver and the
    /// kubelet.
    pub default_fs_type: String,
    /// Send the names of claim and PersistentVolume to the driver.
    pub extra_metadata: bool,
    /// Attach read-only those volumes that have only read-only access modes.
    pub read_only_for_readers: bool,
    /// Refuse to restore a snapshot in another volume mode, unless its content permits it.
    pub guards_volume_mode: bool,
    /// Send the parameters of the VolumeAttributesClass that a claim names.
    pub attributes_classes: bool,
    /// How often snapshots are searched that were protected too long; never if zero.
    pub sweep: Duration,
    /// How often the driver's volumes are compared with the cluster's; never if zero.
    pub leftovers: Duration,
    /// A claim is marked when CreateVolume has taken this long: if the claim is deleted then, or
    /// this process killed, the next leader finds the volume.
    pub mark_after: Duration,
    /// Volumes without a final answer; shared by all terms of the process as leader, and the times
    /// between.
    pub unsettled: UnsettledVolumes,
    /// The host name in events.
    pub host: String,
    /// The metrics of created and deleted volumes.
    pub metrics: ProvisionerMetrics,
    /// The metrics of the queues, if wanted.
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

    /// The settings of a queue.
    pub(super) fn queue(&self, name: &'static str, parallelism: usize) -> Config {
        let metrics = self.queues.as_ref().map(|queues| queues.queue(name));
        Config { name, parallelism, backoff: self.backoff, metrics }
    }
}
