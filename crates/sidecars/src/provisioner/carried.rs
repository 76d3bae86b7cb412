//! Volumes without a final answer, which outlast the term of a leader.
//!
//! A leader that loses its Lease may have called CreateVolume for a claim without a mark. If that
//! claim is deleted, no object names the volume, and no other replica knows of it. So the process
//! keeps its state: while another replica leads it marks claims that still exist (`handover`), and
//! when it leads again it settles the rest.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
    registry::Registry,
};

use super::ledger::Ledger;

/// The volumes that the drivers of a process may have, over all of its terms as leader. Clones
/// share it.
#[derive(Clone, Default)]
pub struct UnsettledVolumes(Arc<Mutex<BTreeMap<String, Arc<Ledger>>>>);

impl UnsettledVolumes {
    /// Registers the number of volumes that only this process knows of.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// The volumes of one driver: another driver may use the same socket later.
    pub(super) fn of(&self, driver: &str) -> Arc<Ledger> {
        Arc::clone(self.all().entry(driver.to_owned()).or_default())
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Ledger>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for UnsettledVolumes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UnsettledVolumes").finish_non_exhaustive()
    }
}

impl Collector for UnsettledVolumes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let orphans: usize = self.all().values().map(|ledger| ledger.orphans()).sum();
        let gauge = ConstGauge::new(i64::try_from(orphans).unwrap_or(i64::MAX));
        let encoder = encoder.encode_descriptor(
            "wharf_provisioner_unsettled_volumes",
            "Number of volumes that the driver may have and that only this process knows of: their claims were deleted, or its Lease was lost before they could be marked",
            None,
            gauge.metric_type(),
        )?;
        gauge.encode(encoder)
    }
}
