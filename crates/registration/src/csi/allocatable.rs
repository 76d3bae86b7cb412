//! The number of volumes that fit on a node may change: drivers whose CSIDriver object names a period are asked again.

use std::{collections::BTreeMap, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{CsiHandler, Drivers, handler::refresh, node::NodeRecord};

/// The periods that CSIDriver objects name, by driver.
type Periods = BTreeMap<String, Duration>;

/// Asks drivers for their node information as often as their CSIDriver object says.
pub struct AllocatableRefresh {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl AllocatableRefresh {
    /// Watches the CSIDriver objects and the handler's drivers.
    pub fn start(client: Client, handler: &CsiHandler, record: NodeRecord) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (periods_sender, periods) = watch::channel(Periods::new());
        let tickers = Tickers { drivers: handler.drivers(), record, running: BTreeMap::new() };
        let watching = follow_objects(client, periods_sender);
        let ticking = tickers.run(handler.changes(), periods);
        let (watching_stop, ticking_stop) = (stop.clone(), stop.clone());
        tasks.spawn(async move {
            watching_stop.run_until_cancelled(watching).await;
        });
        tasks.spawn(async move {
            ticking_stop.run_until_cancelled(ticking).await;
        });
        Self { stop, tasks }
    }

    /// Stops asking.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn follow_objects(client: Client, periods: watch::Sender<Periods>) {
    let objects: Api<CSIDriver> = Api::all(client);
    let mut events = std::pin::pin!(watcher(objects, watcher::Config::default()).default_backoff());
    let mut fresh = Periods::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => fresh.clear(),
            Ok(watcher::Event::InitApply(object)) => note(&mut fresh, &object),
            Ok(watcher::Event::InitDone) => {
                let listed = std::mem::take(&mut fresh);
                periods
                    .send_if_modified(|known| std::mem::replace(known, listed.clone()) != listed);
            }
            Ok(watcher::Event::Apply(object)) => {
                periods.send_if_modified(|known| {
                    let before = known.clone();
                    note(known, &object);
                    *known != before
                });
            }
            Ok(watcher::Event::Delete(object)) => {
                periods.send_if_modified(|known| known.remove(&object.name_any()).is_some());
            }
            Err(error) => warn!(%error, "watch of CSIDriver objects broke, trying again"),
        }
    }
}

fn note(periods: &mut Periods, object: &CSIDriver) {
    let seconds = object.spec.node_allocatable_update_period_seconds;
    match seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0) {
        Some(seconds) => {
            periods.insert(object.name_any(), Duration::from_secs(seconds));
        }
        None => {
            periods.remove(&object.name_any());
        }
    }
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

    fn object(name: &str, period: Option<i64>) -> CSIDriver {
        let spec = json!({ "nodeAllocatableUpdatePeriodSeconds": period });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
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
        let mut periods = Periods::new();
        note(&mut periods, &object("a", Some(30)));
        assert_eq!(periods, Periods::from([("a".to_owned(), Duration::from_secs(30))]));
        note(&mut periods, &object("a", Some(60)));
        assert_eq!(periods["a"], Duration::from_secs(60));
        for none in [None, Some(0), Some(-1)] {
            note(&mut periods, &object("a", Some(30)));
            note(&mut periods, &object("a", none));
            assert_eq!(periods, Periods::new(), "{none:?}");
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
