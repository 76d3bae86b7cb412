//! What an operator sees of a process of sidecars: metrics, and whether it is ready.

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

use super::controller::Served;

/// What is known of the process. Clones share it.
#[derive(Clone)]
pub(super) struct Eyes<For> {
    pub(super) permissions: Permissions,
    /// Objects that are not served.
    pub(super) unserved: Unserved,
    seen: Arc<Mutex<Seen<For>>>,
}

struct Seen<For> {
    /// Whom the controllers work for, once it was found.
    served: Option<For>,
    caches: Option<Caches>,
    /// How often each controller was begun again.
    restarts: BTreeMap<&'static str, u64>,
    /// Controllers that rest after a failure, and what failed.
    failed: BTreeMap<&'static str, String>,
}

impl<For: Served> Eyes<For> {
    /// Registers the metrics; those of all controllers are there from the start.
    pub(super) fn register(registry: &mut Registry, controllers: &[&'static str]) -> Self {
        let restarts = controllers.iter().map(|name| (*name, 0)).collect();
        let seen = Seen { served: None, caches: None, restarts, failed: BTreeMap::new() };
        let eyes = Self {
            permissions: Permissions::default(),
            unserved: Unserved::default(),
            seen: Arc::new(Mutex::new(seen)),
        };
        registry.register_collector(Box::new(eyes.clone()));
        eyes
    }

    /// Work begins for this driver, with these caches; without any where nothing asks the API.
    pub(super) fn begin(&self, served: &For, caches: Option<&Caches>) {
        let mut seen = self.seen();
        seen.served = Some(served.clone());
        seen.caches = caches.cloned();
    }

    /// A controller failed, and rests before it is begun again.
    pub(super) fn failed(&self, controller: &'static str, failure: String) {
        let mut seen = self.seen();
        *seen.restarts.entry(controller).or_default() += 1;
        seen.failed.insert(controller, failure);
    }

    /// A controller works again.
    pub(super) fn works(&self, controller: &'static str) {
        self.seen().failed.remove(controller);
    }

    /// What keeps the process from its work; empty if nothing does.
    pub(super) fn problems(&self) -> Vec<String> {
        let seen = self.seen();
        let mut problems = Vec::new();
        match &seen.served {
            None => problems.push("the CSI driver has not been reached yet".to_owned()),
            Some(served) => problems.extend(served.absence()),
        }
        for (controller, failure) in &seen.failed {
            problems.push(format!("{controller} failed and is begun again: {failure}"));
        }
        for watch in seen.caches.iter().flat_map(Caches::watches).filter(|watch| !watch.synced) {
            problems.push(format!("not all objects of kind {} are known yet", watch.kind));
        }
        // A replica that stands by asks the API for its Lease alone.
        if seen.caches.is_some() {
            problems.extend(self.permissions.silence());
        }
        for verb in self.permissions.missing() {
            problems.push(format!("the account may not {verb}: grant it in its role"));
        }
        problems
    }

    fn seen(&self) -> MutexGuard<'_, Seen<For>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<For> fmt::Debug for Eyes<For> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Eyes").finish_non_exhaustive()
    }
}

impl<For: Served> Collector for Eyes<For> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let seen = self.seen();
        if let Some(absence) =
            seen.served.as_ref().filter(|it| it.driver_name().is_some()).map(For::absence)
        {
            let connected = ConstGauge::new(i64::from(absence.is_none()));
            let encoder = encoder.encode_descriptor(
                "wharf_sidecars_driver_connected",
                "Whether the CSI driver is connected and has said that it is still the same",
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
            "Whether all objects of a kind are known",
            None,
            gauge,
        )?;
        for watch in &watches {
            let labels = [("kind", watch.kind)];
            ConstGauge::new(i64::from(watch.synced)).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "wharf_sidecars_watch_failures",
            "How often the watch of a kind has failed",
            None,
            counter,
        )?;
        for watch in &watches {
            let labels = [("kind", watch.kind)];
            ConstCounter::new(watch.failures).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "wharf_sidecars_controller_restarts",
            "How often a controller panicked or failed and was begun again",
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
            "Rights that the account lacked when they were last needed",
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
            "Objects that ask for what is not built, by controller, kind and reason",
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
