//! What an operator graphs of the pools, counted when it is asked for.

use std::collections::HashSet;
use std::fmt;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::pool::{Pool, PoolId};
use crate::pools::{Pools, ServedPool};
use crate::record::Phase;

/// How long a reader waits for the disks of all pools.
const PATIENCE: Duration = Duration::from_secs(2);

/// The metrics of a driver's pools.
#[derive(Debug)]
pub struct PoolMetrics {
    pools: Arc<Pools>,
    asking: Arc<Asking>,
}

/// The pools whose disks are being asked. A disk that hangs keeps one thread, not one for each reader, and no figures of other
/// pools.
#[derive(Debug, Default)]
struct Asking {
    pools: Mutex<HashSet<PoolId>>,
    answered: Condvar,
}

/// The turn of one reader to ask the disk of a pool.
struct Turn(Arc<Asking>, PoolId);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.pools.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
        self.0.answered.notify_all();
    }
}

impl Asking {
    /// A turn; `None` if the pool's disk does not answer the reader before until then.
    fn turn(self: &Arc<Self>, pool: PoolId, until: Instant) -> Option<Turn> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = until.saturating_duration_since(Instant::now());
        let waited = self.answered.wait_timeout_while(pools, patience, |it| it.contains(&pool));
        let (mut pools, _) = waited.unwrap_or_else(PoisonError::into_inner);
        pools.insert(pool).then(|| Turn(self.clone(), pool))
    }
}

/// One series of a pool: its label beside `pool`, and its value.
type Series = (&'static str, u64);

/// The series of each gauge.
type Figures = [Vec<Series>; GAUGES.len()];

impl PoolMetrics {
    /// The metrics of `pools`.
    pub fn new(pools: Arc<Pools>) -> Self {
        Self { pools, asking: Arc::default() }
    }

    /// The figures of each pool; none of one whose disk hangs, rather than wrong ones.
    fn figures(&self, served: &[Arc<ServedPool>]) -> Vec<Option<Figures>> {
        let now = Instant::now();
        let until = now + PATIENCE;
        let ask = |until| move |served: &Arc<ServedPool>| self.ask(served.pool.clone(), until);
        let mut asked: Vec<_> = served.iter().map(ask(now)).collect();
        // Those that somebody else asks, once the others are at work.
        for (served, asked) in served.iter().zip(&mut asked).filter(|(_, asked)| asked.is_none()) {
            *asked = ask(until)(served);
        }
        let answer = |asked: Receiver<Figures>| {
            asked.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
        };
        asked.into_iter().map(|asked| asked.and_then(answer)).collect()
    }

    /// Asks a pool's disk, in a thread that outlives a reader who does not wait for it.
    fn ask(&self, pool: Arc<Pool>, until: Instant) -> Option<Receiver<Figures>> {
        let turn = self.asking.turn(pool.id(), until)?;
        let (answer, answered) = mpsc::sync_channel(1);
        let ask = move || {
            let figures = GAUGES.map(|gauge| (gauge.read)(&pool));
            drop(turn);
            // Nobody may wait any more.
            let _ = answer.send(figures);
        };
        match thread::Builder::new().name("figures".to_owned()).spawn(ask) {
            Ok(_) => Some(answered),
            Err(error) => {
                tracing::warn!(%error, "failed to start a thread that reads a pool's figures");
                None
            }
        }
    }
}

impl Collector for PoolMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let served = self.pools.served();
        let figures = self.figures(&served);
        for (index, gauge) in GAUGES.into_iter().enumerate() {
            let metric = ConstGauge::new(0_u64);
            let unit = gauge.unit.as_ref();
            let kind = metric.metric_type();
            let mut family = encoder.encode_descriptor(gauge.name, gauge.help, unit, kind)?;
            for (pool, figures) in served.iter().zip(&figures) {
                for (value_of, value) in figures.iter().flat_map(|figures| &figures[index]) {
                    let labels = [("pool", pool.name.as_str()), (gauge.label, *value_of)];
                    let labels = if gauge.label.is_empty() { &labels[..1] } else { &labels };
                    ConstGauge::new(*value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
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
    fn a_disk_that_hangs_costs_its_own_figures_and_no_more_than_one_thread() {
        let folder = tempfile::tempdir().expect("a folder");
        let metrics = PoolMetrics::new(pools(folder.path()));
        let served = metrics.pools.served();
        let (id, other) = (served[0].pool.id(), PoolId::new().expect("an id"));
        let now = Instant::now();
        let hanging = metrics.asking.turn(id, now).expect("nobody asks");
        assert!(metrics.ask(served[0].pool.clone(), now).is_none());
        assert!(metrics.asking.turn(other, now).is_some(), "it hangs for others, too");
        drop(hanging);
        assert!(metrics.figures(&served)[0].is_some());

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
