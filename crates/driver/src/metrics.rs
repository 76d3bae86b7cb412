//! Metrics of pools, computed when they are scraped.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use crate::{
    pool::{Pool, PoolId},
    pools::{Pools, ServedPool},
    record::Phase,
};

/// Maximum wait of a scrape for the disks of all pools.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The metrics of a driver's pools.
#[derive(Debug)]
pub struct PoolMetrics {
    pools: Arc<Pools>,
    queries: Arc<DiskQueries>,
}

/// Pools whose disks are being queried. A disk that hangs blocks one thread, not one per scrape,
/// and does not affect the metrics of other pools.
#[derive(Debug, Default)]
struct DiskQueries {
    pools: Mutex<HashSet<PoolId>>,
    answered: Condvar,
}

/// A running query of one pool's disk; only one runs at a time.
struct DiskQuery(Arc<DiskQueries>, PoolId);

impl Drop for DiskQuery {
    fn drop(&mut self) {
        self.0.pools.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
        self.0.answered.notify_all();
    }
}

impl DiskQueries {
    /// Begins a query. Returns `None` if the previous query of this pool does not end before
    /// `until`.
    fn begin(self: &Arc<Self>, pool: PoolId, until: Instant) -> Option<DiskQuery> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = until.saturating_duration_since(Instant::now());
        let waited = self.answered.wait_timeout_while(pools, limit, |it| it.contains(&pool));
        let (mut pools, _) = waited.unwrap_or_else(PoisonError::into_inner);
        pools.insert(pool).then(|| DiskQuery(self.clone(), pool))
    }
}

/// One series of a pool: the value of its label besides `pool`, and its value.
type Series = (&'static str, u64);

/// The series of each gauge.
type Figures = [Vec<Series>; GAUGES.len()];

impl PoolMetrics {
    /// Creates the metrics of `pools`.
    pub fn new(pools: Arc<Pools>) -> Self {
        Self { pools, queries: Arc::default() }
    }

    /// Reads the gauges of each pool; `None` for a pool whose disk hangs.
    fn figures(&self, served: &[Arc<ServedPool>]) -> Vec<Option<Figures>> {
        let now = Instant::now();
        let until = now + MAX_WAIT;
        let ask = |until| move |served: &Arc<ServedPool>| self.ask(served.pool.clone(), until);
        let mut asked: Vec<_> = served.iter().map(ask(now)).collect();
        // Now wait for pools that another scrape is querying.
        for (served, asked) in served.iter().zip(&mut asked).filter(|(_, asked)| asked.is_none()) {
            *asked = ask(until)(served);
        }
        let answer = |asked: Receiver<Figures>| {
            asked.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
        };
        asked.into_iter().map(|asked| asked.and_then(answer)).collect()
    }

    /// Queries a pool's disk in a thread, which may outlive the scrape.
    fn ask(&self, pool: Arc<Pool>, until: Instant) -> Option<Receiver<Figures>> {
        let query = self.queries.begin(pool.id(), until)?;
        let (answer, answered) = mpsc::sync_channel(1);
        let ask = move || {
            let figures = GAUGES.map(|gauge| (gauge.read)(&pool));
            drop(query);
            // The scrape may have stopped waiting.
            let _ = answer.send(figures);
        };
        match thread::Builder::new().name("figures".to_owned()).spawn(ask) {
            Ok(_) => Some(answered),
            Err(error) => {
                tracing::warn!(%error, "failed to start metrics thread");
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
    /// Reports whether each configured pool is served, for alerts.
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
    /// Name of the label besides `pool`; empty for a gauge with one value per pool.
    label: &'static str,
    read: fn(&Pool) -> Vec<Series>,
}

const GAUGES: [Gauge; 6] = [
    Gauge {
        name: "wharf_driver_pool",
        help: "Space of the pool by kind",
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
        help: "Extents of images in use: of all, and of the most fragmented one",
        unit: None,
        label: "of",
        read: |pool| {
            let (total, most) = pool.extents();
            vec![("all", total), ("most", most)]
        },
    },
    Gauge {
        name: "wharf_driver_quarantined",
        help: "Images without a record, in quarantine",
        unit: None,
        label: "kind",
        read: |pool| vec![("images", pool.quarantined())],
    },
    Gauge {
        name: "wharf_driver_unsharing",
        help: "Bytes of copies that are still to be unshared",
        unit: Some(Unit::Bytes),
        label: "",
        read: |pool| vec![("", pool.unsharing_left())],
    },
];

/// Name, help and value of a counter.
type Counter = (&'static str, &'static str, fn(&Pool) -> u64);

const COUNTERS: [Counter; 2] = [
    (
        "wharf_driver_detaches_left_to_others",
        "Detaches of loop devices that other processes still held",
        Pool::detaches_left_to_others,
    ),
    ("wharf_driver_fsync_errors", "Commits that the pool's disk failed to write", |pool| {
        pool.store().commit_failures()
    }),
];

/// Space of a pool by kind; empty if its disk does not respond.
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
        let hanging = metrics.queries.begin(id, now).expect("nobody asks");
        assert!(metrics.ask(served[0].pool.clone(), now).is_none());
        assert!(metrics.queries.begin(other, now).is_some(), "it hangs for others, too");
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
