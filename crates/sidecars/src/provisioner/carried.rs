//! Volumes without a final answer, which outlast the term of a leader.
//!
//! A leader that loses its Lease may have asked for a volume whose claim has no mark yet. If the claim is deleted then, no
//! object tells of the volume, and no other replica can know. So the process keeps what it knows: while another replica leads
//! it marks claims that are still there (`handover`), and when it leads again it settles the rest.

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

/// What a process knows of volumes that its driver may have: for all of its terms. Clones share it.
#[derive(Clone, Default)]
pub struct UnsettledVolumes(Arc<Mutex<BTreeMap<String, Arc<Ledger>>>>);

impl UnsettledVolumes {
    /// Adds the number of volumes that only this process knows of to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Those of one driver: another driver may be at the same socket later.
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
