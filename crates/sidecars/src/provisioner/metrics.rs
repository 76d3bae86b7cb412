use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};
use wharf_cluster::{PersistentVolume, PersistentVolumeClaim};

use super::capacity::Capacities;

/// The default buckets of Go programs.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Counts of created and deleted volumes, under upstream's names. Clones share them.
#[derive(Clone, Debug)]
pub struct ProvisionerMetrics {
    provisioned: Outcomes<ClaimLabels>,
    deleted: Outcomes<VolumeLabels>,
    leftovers: Gauge,
    unknown: Gauge,
    capacities: CapacityMetrics,
}

impl Default for ProvisionerMetrics {
    fn default() -> Self {
        Self {
            provisioned: Outcomes::new(),
            deleted: Outcomes::new(),
            leftovers: Gauge::default(),
            unknown: Gauge::default(),
            capacities: CapacityMetrics::default(),
        }
    }
}

impl ProvisionerMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.provisioned.register(
            registry,
            "controller_persistentvolumeclaim_provision",
            "Provision",
        );
        self.deleted.register(registry, "controller_persistentvolume_delete", "Deletion");
        registry.register(
            "csi_provisioner_leftover_volumes",
            "Number of volumes that the driver has and that no claim or PersistentVolume knows",
            self.leftovers.clone(),
        );
        registry.register(
            "csi_provisioner_unknown_volumes",
            "Number of volumes that the driver has, that no PersistentVolume knows and whose ids name no claim",
            self.unknown.clone(),
        );
        registry.register_collector(Box::new(self.capacities.clone()));
    }

    /// Sets the number of volumes of deleted claims, and of volumes whose claim is unknown.
    pub(super) fn left_over(&self, ours: usize, unknown: usize) {
        for (gauge, count) in [(&self.leftovers, ours), (&self.unknown, unknown)] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// The capacities of the running term, if any.
    pub(super) fn term(&self, capacities: Option<Arc<Capacities>>) -> Term {
        self.set_capacities(capacities);
        Term(self.clone())
    }

    fn set_capacities(&self, capacities: Option<Arc<Capacities>>) {
        *self.capacities.0.lock().unwrap_or_else(PoisonError::into_inner) = capacities;
    }

    /// Records the end of an attempt to create a volume.
    pub(super) fn provisioned(&self, claim: &PersistentVolumeClaim, took: Option<Duration>) {
        let labels = ClaimLabels {
            class: claim.class().unwrap_or_default().to_owned(),
            source: claim.source().map(|source| source.kind.clone()).unwrap_or_default(),
        };
        self.provisioned.count(&labels, took);
    }

    /// Records the end of an attempt to delete a volume.
    pub(super) fn deleted(&self, volume: &PersistentVolume, took: Option<Duration>) {
        let labels = VolumeLabels { class: volume.spec.storage_class_name.clone().into() };
        self.deleted.count(&labels, took);
    }
}

/// While it exists this process reports the gauges of a leader. Ends when it is dropped.
#[must_use = "a term ends when it is dropped"]
pub(super) struct Term(ProvisionerMetrics);

impl Drop for Term {
    fn drop(&mut self) {
        self.0.left_over(0, 0);
        self.0.set_capacities(None);
    }
}

/// Counts of capacity objects, computed on each scrape.
#[derive(Clone, Default)]
struct CapacityMetrics(Arc<Mutex<Option<Arc<Capacities>>>>);

impl fmt::Debug for CapacityMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CapacityMetrics").finish_non_exhaustive()
    }
}

impl Collector for CapacityMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let capacities = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(capacities) = capacities else { return Ok(()) };
        let (goal, current, obsolete) = capacities.counts();
        for (name, help, count) in [
            ("csistoragecapacities_desired_goal", "that are desired", goal),
            ("csistoragecapacities_desired_current", "that are desired and exist", current),
            ("csistoragecapacities_obsolete", "to be deleted", obsolete),
        ] {
            let help = format!("Number of CSIStorageCapacity objects {help}");
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, &help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

/// Successes, failures and the duration of successes.
#[derive(Clone, Debug)]
struct Outcomes<L: Clone + Eq + std::hash::Hash> {
    succeeded: Family<L, Counter>,
    failed: Family<L, Counter>,
    seconds: Family<L, Histogram, fn() -> Histogram>,
}

impl<L> Outcomes<L>
where
    L: EncodeLabelSet + Clone + Eq + std::hash::Hash + fmt::Debug + Send + Sync + 'static,
{
    fn new() -> Self {
        Self {
            succeeded: Family::default(),
            failed: Family::default(),
            seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
        }
    }

    fn register(&self, registry: &mut Registry, name: &str, what: &str) {
        // The library appends `_total` to the names of counters.
        registry.register(
            name,
            format!("{what} of volumes that succeeded"),
            self.succeeded.clone(),
        );
        registry.register(
            format!("{name}_failed"),
            format!("{what} of volumes that failed"),
            self.failed.clone(),
        );
        registry.register(
            format!("{name}_duration_seconds"),
            format!("Duration of successful {what} of volumes, in seconds"),
            self.seconds.clone(),
        );
    }

    fn count(&self, labels: &L, took: Option<Duration>) {
        match took {
            Some(took) => {
                self.succeeded.get_or_create(labels).inc();
                self.seconds.get_or_create(labels).observe(took.as_secs_f64());
            }
            None => drop(self.failed.get_or_create(labels).inc()),
        }
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ClaimLabels {
    class: String,
    source: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VolumeLabels {
    class: String,
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn names_and_labels_are_upstreams() {
        let metrics = ProvisionerMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut claim = PersistentVolumeClaim::default();
        claim.spec.storage_class_name = Some("fast".into());
        metrics.provisioned(&claim, Some(Duration::from_millis(20)));
        metrics.provisioned(&claim, None);
        let mut volume = PersistentVolume::default();
        volume.spec.storage_class_name = "slow".into();
        metrics.deleted(&volume, Some(Duration::from_millis(20)));
        metrics.deleted(&volume, None);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let claim = "controller_persistentvolumeclaim_provision";
        let labels = r#"{class="fast",source=""}"#;
        let volume = "controller_persistentvolume_delete";
        for line in [
            format!("{claim}_total{labels} 1"),
            format!("{claim}_failed_total{labels} 1"),
            format!("{claim}_duration_seconds_count{labels} 1"),
            format!(r#"{volume}_total{{class="slow"}} 1"#),
            format!(r#"{volume}_failed_total{{class="slow"}} 1"#),
            format!(r#"{volume}_duration_seconds_count{{class="slow"}} 1"#),
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
    }
}
