//! What an operator graphs of the pools, counted when it is asked for.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::pool::Pool;
use crate::pools::Pools;
use crate::record::Phase;

/// How long a reader waits for another one: a disk that hangs keeps one thread, not one for each reader.
const PATIENCE: Duration = Duration::from_secs(2);

/// The metrics of a driver's pools.
#[derive(Debug)]
pub struct PoolMetrics {
    pools: Arc<Pools>,
    /// Whether somebody asks the pools' disks now.
    asking: Mutex<bool>,
    asked: Condvar,
}

/// The turn of one reader to ask the pools' disks.
struct Turn<'a>(&'a PoolMetrics);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.asking.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.asked.notify_one();
    }
}

/// One series of a pool: its label beside `pool`, and its value.
type Series = (&'static str, u64);

impl PoolMetrics {
    /// The metrics of `pools`.
    pub fn new(pools: Arc<Pools>) -> Self {
        Self { pools, asking: Mutex::new(false), asked: Condvar::new() }
    }

    /// The turn of this reader; `None` if the disks do not answer the one before.
    fn turn(&self, patience: Duration) -> Option<Turn<'_>> {
        let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.asked.wait_timeout_while(asking, patience, |asking| *asking);
        let (mut asking, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let free = !*asking;
        *asking = true;
        drop(asking);
        free.then(|| Turn(self))
    }
}

impl Collector for PoolMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let served = self.pools.served();
        let turn = self.turn(PATIENCE);
        // Disks that hang show no figures rather than wrong ones.
        let asked = if turn.is_some() { &served[..] } else { &[] };
        for gauge in GAUGES {
            let metric = ConstGauge::new(0_u64);
            let unit = gauge.unit.as_ref();
            let kind = metric.metric_type();
            let mut family = encoder.encode_descriptor(gauge.name, gauge.help, unit, kind)?;
            for pool in asked {
                for (value_of, value) in (gauge.read)(&pool.pool) {
                    let labels = [("pool", pool.name.as_str()), (gauge.label, value_of)];
                    let labels = if gauge.label.is_empty() { &labels[..1] } else { &labels };
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        drop(turn);
        self.encode_served(&mut encoder)?;
        for (name, help, read) in COUNTERS {
            let metric = ConstCounter::new(0_u64);
            let mut family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            for pool in &served {
                let labels = [("pool", pool.name.as_str())];
                ConstCounter::new(read(&pool.pool)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl PoolMetrics {
    /// Whether each configured pool is served, for an alert on one that is not.
    fn encode_served(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = ConstGauge::new(0_u64).metric_type();
        let help = "1 for each configured pool that is served, 0 for one that is not";
        let name = "wharf_driver_pool_served";
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (pool, served) in self.pools.configured() {
            let labels = [("pool", pool.as_str())];
            ConstGauge::new(u64::from(served)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

struct Gauge {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    /// The label beside `pool`; empty for a gauge with one value for a pool.
    label: &'static str,
    read: fn(&Pool) -> Vec<Series>,
}

const GAUGES: [Gauge; 6] = [
    Gauge {
        name: "wharf_driver_pool",
        help: "The pool's account",
        unit: Some(Unit::Bytes),
        label: "kind",
        read: account,
    },
    Gauge {
        name: "wharf_driver_volumes",
        help: "Volumes by phase",
        unit: None,
        label: "phase",
        read: |pool| {
            pool.store().read(|state| count(state.volumes.iter().map(|volume| volume.phase)))
        },
    },
    Gauge {
        name: "wharf_driver_snapshots",
        help: "Snapshots by phase",
        unit: None,
        label: "phase",
        read: |pool| pool.store().read(|state| count(state.snapshots.iter().map(|it| it.phase))),
    },
    Gauge {
        name: "wharf_driver_extents",
        help: "Pieces of the images in use, and of the one in the most",
        unit: None,
        label: "of",
        read: |pool| {
            let (total, most) = pool.extents();
            vec![("all", total), ("most", most)]
        },
    },
    Gauge {
        name: "wharf_driver_quarantined",
        help: "Images that no record knows",
        unit: None,
        label: "kind",
        read: |pool| vec![("images", pool.quarantined())],
    },
    Gauge {
        name: "wharf_driver_unsharing",
        help: "Bytes of copies that still have to get blocks of their own",
        unit: Some(Unit::Bytes),
        label: "",
        read: |pool| vec![("", pool.unsharing_left())],
    },
];

/// A counter's name, help and value.
type Counter = (&'static str, &'static str, fn(&Pool) -> u64);

const COUNTERS: [Counter; 2] = [
    (
        "wharf_driver_detaches_left_to_others",
        "Detaches of loop devices that were left to others, who still held the device",
        Pool::detaches_left_to_others,
    ),
    ("wharf_driver_fsync_errors", "Commits and flushes that the pool's disk refused", |pool| {
        pool.store().commit_failures()
    }),
];

/// A pool whose disk does not answer shows no bytes rather than wrong ones.
fn account(pool: &Pool) -> Vec<Series> {
    let Ok(account) = pool.ensure_present().and_then(|()| pool.account()) else {
        return Vec::new();
    };
    vec![
        ("total", account.disk.total),
        ("available", account.disk.available),
        ("promised", account.promised),
        ("floor", account.floor),
        ("capacity", account.capacity()),
        ("thin_promised", account.thin_promised),
        ("thin_limit", account.thin_limit),
        ("thin_floor", account.thin_floor),
    ]
}

fn count(phases: impl Iterator<Item = Phase>) -> Vec<Series> {
    let mut counts = vec![("creating", 0), ("ready", 0), ("expanding", 0), ("deleting", 0)];
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

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text, registry::Registry};

    use super::*;
    use crate::pools::fixtures::pools;

    #[test]
    fn a_disk_that_hangs_costs_its_figures_and_no_more_than_one_thread() {
        let folder = tempfile::tempdir().expect("a folder");
        let metrics = PoolMetrics::new(pools(folder.path()));
        let hanging = metrics.turn(Duration::ZERO).expect("nobody asks");
        assert!(metrics.turn(Duration::ZERO).is_none());
        drop(hanging);
        let turn = metrics.turn(Duration::ZERO);
        assert!(turn.is_some());
        drop(turn);

        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics));
        let mut shown = String::new();
        text::encode(&mut shown, &registry).expect("encoded");
        for line in [
            r#"wharf_driver_pool_served{pool="default"} 1"#,
            r#"wharf_driver_volumes{pool="default",phase="ready"} 0"#,
            r#"wharf_driver_fsync_errors_total{pool="default"} 0"#,
        ] {
            assert!(shown.lines().any(|it| it == line), "{line}:\n{shown}");
        }
    }
}
