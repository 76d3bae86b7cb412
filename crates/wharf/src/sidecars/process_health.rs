//! Metrics and readiness of a process of sidecars.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use wharf_cluster::Permissions;
use wharf_sidecars::{Caches, not_served::Unserved};

use super::controller::Target;

/// State of the process for `/readyz` and `/metrics`. Clones share it.
#[derive(Clone)]
pub(super) struct ProcessHealth<T> {
    pub(super) permissions: Permissions,
    /// Objects that ask for features which are not built.
    pub(super) unserved: Unserved,
    seen: Arc<Mutex<Seen<T>>>,
}

struct Seen<T> {
    /// The driver or cluster, once connected.
    served: Option<T>,
    caches: Option<Caches>,
    /// Restarts of each controller.
    restarts: BTreeMap<&'static str, u64>,
    /// Controllers that wait for a restart, and their errors.
    failed: BTreeMap<&'static str, String>,
}

impl<T: Target> ProcessHealth<T> {
    /// Registers the metrics, with a restart counter of 0 for each controller.
    pub(super) fn register(registry: &mut Registry, controllers: &[&'static str]) -> Self {
        let restarts = controllers.iter().map(|name| (*name, 0)).collect();
        let seen = Seen { served: None, caches: None, restarts, failed: BTreeMap::new() };
        let process_health = Self {
            permissions: Permissions::default(),
            unserved: Unserved::default(),
            seen: Arc::new(Mutex::new(seen)),
        };
        registry.register_collector(Box::new(process_health.clone()));
        process_health
    }

    /// Records the target that the controllers now serve, and their caches; `None` in a process
    /// that makes no requests to the API.
    pub(super) fn begin(&self, served: &T, caches: Option<&Caches>) {
        let mut seen = self.seen();
        seen.served = Some(served.clone());
        seen.caches = caches.cloned();
    }

    /// Records that a controller failed and waits for a restart.
    pub(super) fn failed(&self, controller: &'static str, failure: String) {
        let mut seen = self.seen();
        *seen.restarts.entry(controller).or_default() += 1;
        seen.failed.insert(controller, failure);
    }

    /// Records that a controller runs.
    pub(super) fn works(&self, controller: &'static str) {
        self.seen().failed.remove(controller);
    }

    /// Reasons why the process is not ready; empty if it is.
    pub(super) fn problems(&self) -> Vec<String> {
        let seen = self.seen();
        let mut problems = Vec::new();
        match &seen.served {
            None => problems.push("the CSI driver has not been reached yet".to_owned()),
            Some(served) => problems.extend(served.absence()),
        }
        for (controller, failure) in &seen.failed {
            problems.push(format!("{controller} failed and restarts: {failure}"));
        }
        for watch in seen.caches.iter().flat_map(Caches::watches).filter(|watch| !watch.synced) {
            problems.push(format!("not all objects of kind {} are known yet", watch.kind));
        }
        // A standby's only requests are those for its Lease, so silence of the API counts here too.
        if seen.caches.is_some() {
            problems.extend(self.permissions.silence());
        }
        for verb in self.permissions.missing() {
            problems.push(format!("the account may not {verb}: grant it in its role"));
        }
        problems
    }

    fn seen(&self) -> MutexGuard<'_, Seen<T>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for ProcessHealth<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ProcessHealth").finish_non_exhaustive()
    }
}

impl<T: Target> Collector for ProcessHealth<T> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let seen = self.seen();
        if let Some(absence) =
            seen.served.as_ref().filter(|it| it.driver_name().is_some()).map(T::absence)
        {
            let connected = ConstGauge::new(i64::from(absence.is_none()));
            let encoder = encoder.encode_descriptor(
                "wharf_sidecars_driver_connected",
                "1 if the CSI driver is connected and its name and capabilities are confirmed, otherwise 0",
                None,
                connected.metric_type(),
            )?;
            connected.encode(encoder)?;
        }
        let watches = seen.caches.as_ref().map(Caches::watches).unwrap_or_default();
        let (gauge, counter) =
            (ConstGauge::new(0).metric_type(), ConstCounter::new(0u64).metric_type());
        let mut family = encoder.encode_descriptor(
            "wharf_sidecars_cache_synced",
            "1 if all objects of the kind are in the cache, otherwise 0",
            None,
            gauge,
        )?;
        for watch in &watches {
            let labels = [("kind", watch.kind)];
            ConstGauge::new(i64::from(watch.synced)).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "wharf_sidecars_watch_failures",
            "Failures of the watch of a kind",
            None,
            counter,
        )?;
        for watch in &watches {
            let labels = [("kind", watch.kind)];
            ConstCounter::new(watch.failures).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "wharf_sidecars_controller_restarts",
            "Restarts of a controller that panicked or failed",
            None,
            counter,
        )?;
        for (controller, restarts) in &seen.restarts {
            let labels = [("controller", *controller)];
            ConstCounter::new(*restarts).encode(family.encode_family(&labels)?)?;
        }
        drop(seen);
        let mut family = encoder.encode_descriptor(
            "wharf_sidecars_missing_verb",
            "1 for each right that the account lacked when it was last needed",
            None,
            gauge,
        )?;
        for missing in self.permissions.missing() {
            let labels = [
                ("verb", missing.verb.as_str()),
                ("resource", &missing.resource),
                ("group", &missing.group),
            ];
            ConstGauge::new(1).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "wharf_sidecars_unserved_objects",
            "Objects that ask for features which are not built, by controller, kind and reason",
            None,
            gauge,
        )?;
        for (controller, gap, count) in self.unserved.counts() {
            let labels =
                [("controller", controller), ("kind", gap.kind()), ("reason", gap.reason())];
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
