//! What an operator graphs of a pool, counted when it is asked for.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::pool::Pool;
use crate::record::Phase;

/// The metrics of one pool.
#[derive(Debug)]
pub struct PoolMetrics(Arc<Pool>);

impl PoolMetrics {
    /// The metrics of `pool`.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self(pool)
    }
}

impl Collector for PoolMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name, help, unit: Option<&Unit>, values: &[(&str, u64)], label| {
            let metric = ConstGauge::new(0_u64);
            let mut family = encoder.encode_descriptor(name, help, unit, metric.metric_type())?;
            for (value_of, value) in values {
                ConstGauge::new(*value).encode(family.encode_family(&[(label, *value_of)])?)?;
            }
            Ok::<_, fmt::Error>(())
        };
        // A pool whose disk does not answer shows no bytes rather than wrong ones.
        if let Ok(account) = self.0.account() {
            let bytes = [
                ("total", account.disk.total),
                ("available", account.disk.available),
                ("promised", account.promised),
                ("floor", account.floor),
                ("capacity", account.capacity()),
                ("thin_promised", account.thin_promised),
                ("thin_limit", account.thin_limit),
                ("thin_floor", account.thin_floor),
            ];
            gauge("wharf_driver_pool", "The pool's account", Some(&Unit::Bytes), &bytes, "kind")?;
        }
        let (volumes, snapshots) = self.0.store().read(|state| {
            let volumes = state.volumes.iter().map(|volume| volume.phase);
            let snapshots = state.snapshots.iter().map(|snapshot| snapshot.phase);
            (count(volumes), count(snapshots))
        });
        gauge("wharf_driver_volumes", "Volumes by phase", None, &volumes, "phase")?;
        gauge("wharf_driver_snapshots", "Snapshots by phase", None, &snapshots, "phase")?;
        let (total, most) = self.0.extents();
        let extents = [("all", total), ("most", most)];
        gauge(
            "wharf_driver_extents",
            "Pieces of the images in use, and of the one in the most",
            None,
            &extents,
            "of",
        )?;
        let quarantined = [("images", self.0.quarantined())];
        gauge(
            "wharf_driver_quarantined",
            "Images that no record knows",
            None,
            &quarantined,
            "kind",
        )?;
        let left = ConstGauge::new(self.0.unsharing_left());
        let (name, unit) = ("wharf_driver_unsharing", Some(&Unit::Bytes));
        let help = "Bytes of copies that still have to get blocks of their own";
        left.encode(encoder.encode_descriptor(name, help, unit, left.metric_type())?)?;
        let left = ConstCounter::new(self.0.detaches_left_to_others());
        let help = "Detaches of loop devices that were left to others, who still held the device";
        let name = "wharf_driver_detaches_left_to_others";
        left.encode(encoder.encode_descriptor(name, help, None, left.metric_type())?)?;
        let failures = ConstCounter::new(self.0.store().commit_failures());
        let help = "Commits and flushes that the pool's disk refused";
        let family = encoder.encode_descriptor(
            "wharf_driver_fsync_errors",
            help,
            None,
            failures.metric_type(),
        )?;
        failures.encode(family)
    }
}

fn count(phases: impl Iterator<Item = Phase>) -> [(&'static str, u64); 4] {
    let mut counts = [("creating", 0), ("ready", 0), ("expanding", 0), ("deleting", 0)];
    for phase in phases {
        let index = match phase {
            Phase::Creating => 0,
            Phase::Ready => 1,
            Phase::Expanding { .. } => 2,
            Phase::Deleting => 3,
        };
        counts[index].1 += 1;
    }
    counts
}
