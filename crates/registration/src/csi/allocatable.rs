//! Refreshes the volume limit of drivers periodically, for drivers whose CSIDriver object sets
//! `nodeAllocatableUpdatePeriodSeconds`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::Client;
use serde::Deserialize;
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use wharf_cluster::{Kind, Meta, Store, Subscription, Watch};

use super::{CsiHandler, Drivers, handler::refresh, node::NodeRecord};

/// The refresh periods that CSIDriver objects set, by driver.
type Periods = BTreeMap<String, Duration>;

/// A CSIDriver object, trimmed to its refresh period.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct CsiDriver {
    metadata: Meta,
    spec: CsiDriverSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CsiDriverSpec {
    node_allocatable_update_period_seconds: Option<i64>,
}

impl CsiDriver {
    /// The refresh period; `None` if the object sets none, or one that is not positive.
    fn period(&self) -> Option<Duration> {
        let seconds = u64::try_from(self.spec.node_allocatable_update_period_seconds?).ok()?;
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

impl Kind for CsiDriver {
    const KIND: &'static str = "CSIDriver";
    const GROUP: &'static str = "/apis/storage.k8s.io/v1";
    const RESOURCE: &'static str = "csidrivers";

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Calls NodeGetInfo on each installed driver at the period of its CSIDriver object.
pub struct AllocatableRefresh {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    _periods: Subscription<CsiDriver>,
}

impl AllocatableRefresh {
    /// Watches the CSIDriver objects and the drivers of `handler`.
    pub fn start(client: Client, handler: &CsiHandler, record: NodeRecord) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let objects = Store::new(|object: &mut CsiDriver| object.period().is_some());
        let (subscription, periods) = follow(&objects);
        tasks.spawn(Watch::new(client, objects).run(stop.clone()));
        let tickers = Tickers { drivers: handler.drivers(), record, running: BTreeMap::new() };
        let ticking = tickers.run(handler.changes(), periods);
        let ticking_stop = stop.clone();
        tasks.spawn(async move {
            ticking_stop.run_until_cancelled(ticking).await;
        });
        Self { stop, tasks, _periods: subscription }
    }

    /// Ends the watch and the periodic calls, and waits until both have ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// The periods of the objects in `objects`, kept up to date while the subscription lives.
fn follow(objects: &Arc<Store<CsiDriver>>) -> (Subscription<CsiDriver>, watch::Receiver<Periods>) {
    let (sender, periods) = watch::channel(Periods::new());
    let subscription = objects.subscribe(move |change| {
        sender.send_if_modified(|periods| match change.new.and_then(|object| object.period()) {
            Some(period) => periods.insert(change.key.to_string(), period) != Some(period),
            None => periods.remove(&**change.key).is_some(),
        });
    });
    (subscription, periods)
}

/// One ticking task per driver that is installed and has a period.
struct Tickers {
    drivers: Drivers,
    record: NodeRecord,
    running: BTreeMap<String, (Duration, JoinSet<()>)>,
}

impl Tickers {
    async fn run(
        mut self,
        mut changes: watch::Receiver<u64>,
        mut periods: watch::Receiver<Periods>,
    ) {
        loop {
            let wanted = periods.borrow_and_update().clone();
            changes.mark_unchanged();
            self.adjust(&wanted);
            let news = tokio::select! {
                news = changes.changed() => news,
                news = periods.changed() => news,
            };
            if news.is_err() {
                return;
            }
        }
    }

    fn adjust(&mut self, periods: &Periods) {
        let wanted = |name: &String| periods.get(name).filter(|_| self.drivers.contains(name));
        self.running.retain(|name, (period, _)| wanted(name) == Some(period));
        let installed = self.drivers.view().into_iter().map(|line| line.name);
        for name in installed {
            let Some(period) = periods.get(&name).copied() else { continue };
            self.running.entry(name.clone()).or_insert_with(|| {
                debug!(driver = %name, ?period, "asking for node information periodically");
                let mut ticking = JoinSet::new();
                ticking.spawn(tick(name, period, self.drivers.clone(), self.record.clone()));
                (period, ticking)
            });
        }
    }
}

async fn tick(name: String, period: Duration, drivers: Drivers, record: NodeRecord) {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(socket) = drivers.serving_socket(&name) {
            refresh(&name, &socket, &drivers, &record).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use wharf_csi::{Driver, DriverOptions, NodeInfo};
    use wharf_facts::version::Version;

    use super::{
        super::{
            drivers::Instance,
            node::{NoApi, RecordOptions},
        },
        *,
    };

    fn object(name: &str, version: u32, period: Option<i64>) -> CsiDriver {
        let metadata = json!({ "name": name, "resourceVersion": version.to_string() });
        let spec = json!({ "nodeAllocatableUpdatePeriodSeconds": period });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn installed(drivers: &Drivers, name: &str) {
        let instance = Instance {
            socket: "/nonexistent/reg.sock".into(),
            endpoint: "/nonexistent/csi.sock".into(),
            version: Version::parse("1.0").unwrap(),
            driver: Driver::new("/nonexistent/csi.sock", DriverOptions::default()),
            info: NodeInfo::default(),
            watching: JoinSet::new(),
        };
        drivers.add(name, instance);
    }

    #[test]
    fn an_object_without_a_period_has_none() {
        let objects = Store::new(|object: &mut CsiDriver| object.period().is_some());
        let (_subscription, periods) = follow(&objects);
        let mut version = 0;
        let mut shown = |period| {
            version += 1;
            objects.observe(object("a", version, period));
            periods.borrow().clone()
        };
        assert_eq!(shown(Some(30)), Periods::from([("a".to_owned(), Duration::from_secs(30))]));
        assert_eq!(shown(Some(60))["a"], Duration::from_secs(60));
        for none in [None, Some(0), Some(-1)] {
            assert_eq!(shown(Some(30))["a"], Duration::from_secs(30));
            assert_eq!(shown(none), Periods::new(), "{none:?}");
        }
    }

    #[tokio::test]
    async fn a_driver_is_asked_while_it_is_installed_and_has_a_period() {
        let drivers = Drivers::default();
        let record = NodeRecord::start(Arc::new(NoApi), RecordOptions::default());
        let mut tickers = Tickers { drivers: drivers.clone(), record, running: BTreeMap::new() };
        let period = |seconds| Periods::from([("a".to_owned(), Duration::from_secs(seconds))]);
        let mut running = |periods: &Periods| -> Vec<(String, u64)> {
            tickers.adjust(periods);
            let running = tickers.running.iter();
            running.map(|(name, (period, _))| (name.clone(), period.as_secs())).collect()
        };
        assert_eq!(running(&period(30)), [], "not installed");
        installed(&drivers, "a");
        installed(&drivers, "b");
        assert_eq!(running(&Periods::new()), [], "no CSIDriver, or one without a period");
        assert_eq!(running(&period(30)), [("a".to_owned(), 30)]);
        assert_eq!(running(&period(60)), [("a".to_owned(), 60)], "a change replaces it");
        assert_eq!(running(&Periods::new()), [], "the period was taken away");
        assert_eq!(running(&period(30)), [("a".to_owned(), 30)]);
        drivers.remove("a", "/nonexistent/reg.sock".as_ref());
        assert_eq!(running(&period(30)), [], "deregistered");
    }
}
