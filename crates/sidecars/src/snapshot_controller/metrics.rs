use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;
use wharf_cluster::VolumeSnapshot;

const BUCKETS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// The duration of snapshots until a milestone, under upstream's names. Clones share them.
#[derive(Clone)]
pub struct SnapshotMetrics {
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
    begun: Arc<Mutex<HashMap<(Timed, String), Begun>>>,
}

/// The milestones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Timed {
    /// The driver has taken the snapshot.
    Create,
    /// Volumes can be restored from it.
    CreateAndReady,
    /// It is deleted.
    Delete,
}

struct Begun {
    at: Instant,
    driver: Option<String>,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    driver_name: String,
    operation_name: &'static str,
    snapshot_type: &'static str,
    operation_status: &'static str,
}

impl Default for SnapshotMetrics {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
            in_flight: Gauge::default(),
            begun: Arc::default(),
        }
    }
}

impl SnapshotMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "snapshot_controller_operation_total_seconds",
            "Total number of seconds spent by the controller on an operation",
            self.seconds.clone(),
        );
        registry.register(
            "snapshot_controller_operations_in_flight",
            "Total number of operations in flight",
            self.in_flight.clone(),
        );
    }

    pub(super) fn begin_creation(&self, snapshot: &VolumeSnapshot, driver: Option<String>) {
        let status = snapshot.status.as_ref();
        if status.is_none_or(|status| status.creation_time.is_none()) {
            self.begin(Timed::Create, snapshot, driver.clone());
        }
        self.begin(Timed::CreateAndReady, snapshot, driver);
    }

    /// Begins to measure; does nothing if it has begun already.
    pub(super) fn begin(&self, timed: Timed, snapshot: &VolumeSnapshot, driver: Option<String>) {
        let given = snapshot.spec.source.volume_snapshot_content_name.is_some();
        let kind = if given { "pre-provisioned" } else { "dynamic" };
        let mut begun = self.begun();
        let begin = || Begun { at: Instant::now(), driver, kind };
        begun.entry((timed, snapshot.metadata.uid.clone())).or_insert_with(begin);
        self.show(&begun);
    }

    /// Records that the milestone is reached.
    pub(super) fn end(&self, timed: Timed, uid: &str, driver: &str) {
        let mut begun = self.begun();
        if let Some(it) = begun.remove(&(timed, uid.to_owned())) {
            self.count(timed, &it, Some(driver), "success");
        }
        self.show(&begun);
    }

    /// Drops measurements of a snapshot that is gone.
    pub(super) fn gone(&self, uid: &str) {
        let mut begun = self.begun();
        for (timed, outcome) in [
            (Timed::Delete, "success"),
            (Timed::Create, "cancel"),
            (Timed::CreateAndReady, "cancel"),
        ] {
            if let Some(it) = begun.remove(&(timed, uid.to_owned())) {
                self.count(timed, &it, None, outcome);
            }
        }
        self.show(&begun);
    }

    /// A term of work; operations in flight at its end are measured by the next leader.
    pub(super) fn term(&self) -> Term {
        Term(self.clone())
    }

    fn count(&self, timed: Timed, it: &Begun, driver: Option<&str>, outcome: &'static str) {
        let labels = Labels {
            driver_name: driver.or(it.driver.as_deref()).unwrap_or("unknown").to_owned(),
            operation_name: match timed {
                Timed::Create => "CreateSnapshot",
                Timed::CreateAndReady => "CreateSnapshotAndReady",
                Timed::Delete => "DeleteSnapshot",
            },
            snapshot_type: it.kind,
            operation_status: outcome,
        };
        self.seconds.get_or_create(&labels).observe(it.at.elapsed().as_secs_f64());
    }

    fn show(&self, begun: &HashMap<(Timed, String), Begun>) {
        self.in_flight.set(i64::try_from(begun.len()).unwrap_or(i64::MAX));
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<(Timed, String), Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends when it is dropped.
#[must_use = "a term ends when it is dropped"]
pub(super) struct Term(SnapshotMetrics);

impl Drop for Term {
    fn drop(&mut self) {
        let mut begun = self.0.begun();
        begun.clear();
        self.0.show(&begun);
    }
}

impl fmt::Debug for SnapshotMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SnapshotMetrics").finish_non_exhaustive()
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn nothing_is_in_flight_between_terms() {
        let metrics = SnapshotMetrics::default();
        let term = metrics.term();
        metrics.begin_creation(&VolumeSnapshot::default(), None);
        assert_eq!(metrics.in_flight.get(), 2);
        drop(term);
        assert_eq!(metrics.in_flight.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_is_timed_until_its_end() {
        let metrics = SnapshotMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut snapshot = VolumeSnapshot::default();
        snapshot.metadata.uid = "u".to_owned();
        metrics.begin_creation(&snapshot, Some("d".to_owned()));
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        metrics.begin_creation(&snapshot, Some("d".to_owned()));
        metrics.end(Timed::Create, "u", "d");
        metrics.begin(Timed::Delete, &snapshot, None);
        let text = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        assert!(text().contains("snapshot_controller_operations_in_flight 2\n"), "{}", text());
        metrics.gone("u");
        let text = text();
        for line in [
            "snapshot_controller_operations_in_flight 0\n",
            "operation_total_seconds_sum{driver_name=\"d\",operation_name=\"CreateSnapshot\",snapshot_type=\"dynamic\",operation_status=\"success\"} 2.0",
            "operation_name=\"CreateSnapshotAndReady\",snapshot_type=\"dynamic\",operation_status=\"cancel\"",
            "driver_name=\"unknown\",operation_name=\"DeleteSnapshot\",snapshot_type=\"dynamic\",operation_status=\"success\"",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
