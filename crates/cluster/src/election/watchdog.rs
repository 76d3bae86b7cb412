//! Metrics and the health check of an election.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::time::Instant;

use super::ElectionTiming;

/// How long a leader's Lease may have been expired before the health check fails.
const TOLERATED_EXPIRY: Duration = Duration::from_secs(20);

/// client-go's metrics of elections, by the name of the Lease.
#[derive(Clone, Debug)]
pub struct ElectionMetrics {
    leading: Family<Labels, Gauge>,
    slow_path: Family<Labels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    name: String,
}

impl ElectionMetrics {
    /// Registers the metrics, once per registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self { leading: Family::default(), slow_path: Family::default() };
        registry.register(
            "leader_election_master_status",
            "Whether this process leads under the Lease: 1 as leader, 0 as standby",
            metrics.leading.clone(),
        );
        registry.register(
            "leader_election_slowpath",
            "Renewals that had to read the Lease again before they could write it",
            metrics.slow_path.clone(),
        );
        metrics
    }
}

/// Whether a leader still renews. Clones and their elections share it.
#[derive(Clone, Debug, Default)]
pub struct ElectionHealth(Arc<Mutex<Option<Renewal>>>);

/// The last renewal of a leader.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    timing: ElectionTiming,
    at: Instant,
}

impl ElectionHealth {
    /// Fails when this process leads and its Lease has been expired for more than 20 s: another
    /// replica may lead as well.
    pub fn check(&self) -> Result<(), String> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Renewal { timing, at }) if at.elapsed() > timing.tolerated(TOLERATED_EXPIRY) => {
                Err(format!(
                    "failed election to renew leadership: the last renewal was {} s ago",
                    at.elapsed().as_secs()
                ))
            }
            _ => Ok(()),
        }
    }

    fn set(&self, renewal: Option<Renewal>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = renewal;
    }
}

/// One election's metrics and health.
pub(super) struct Watchdog {
    timing: ElectionTiming,
    health: ElectionHealth,
    leading: Gauge,
    slow_path: Counter,
}

impl Watchdog {
    pub(super) fn new(
        name: &str,
        timing: ElectionTiming,
        health: ElectionHealth,
        metrics: &ElectionMetrics,
    ) -> Self {
        let labels = Labels { name: name.to_owned() };
        Self {
            timing,
            health,
            leading: metrics.leading.get_or_create(&labels).clone(),
            slow_path: metrics.slow_path.get_or_create(&labels).clone(),
        }
    }

    /// A term as leader, which ends when it is dropped.
    pub(super) fn term(&self) -> LeaderTerm<'_> {
        self.leading.set(1);
        LeaderTerm(self)
    }

    pub(super) fn slow_path(&self) {
        self.slow_path.inc();
    }
}

pub(super) struct LeaderTerm<'a>(&'a Watchdog);

impl LeaderTerm<'_> {
    pub(super) fn renewed(&self, at: Instant) {
        self.0.health.set(Some(Renewal { timing: self.0.timing, at }));
    }
}

impl Drop for LeaderTerm<'_> {
    fn drop(&mut self) {
        self.0.leading.set(0);
        self.0.health.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_no_longer_renews_is_sick() {
        let mut registry = Registry::default();
        let metrics = ElectionMetrics::register(&mut registry);
        let health = ElectionHealth::default();
        let watchdog = Watchdog::new("x", ElectionTiming::default(), health.clone(), &metrics);
        assert_eq!(health.check(), Ok(()));
        let term = watchdog.term();
        term.renewed(Instant::now());
        watchdog.slow_path();
        tokio::time::advance(Duration::from_secs(35)).await;
        assert_eq!(health.check(), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(
            health.check(),
            Err("failed election to renew leadership: the last renewal was 36 s ago".to_owned())
        );
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "leader_election_master_status{name=\"x\"} 1",
            "leader_election_slowpath_total{name=\"x\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }

        drop(term);
        assert_eq!(health.check(), Ok(()));
    }
}
