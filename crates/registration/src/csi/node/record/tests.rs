use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use wharf_csi::NodeInfo;

use super::{
    super::plan::{Refusals, Wanted},
    NodeObjects, NodeRecord, RecordOptions, SyncError,
};

const GRACE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_mins(2);
/// How long one sync takes, so that orders can come in the middle of it.
const SYNC: Duration = Duration::from_millis(5);

type Answer = Box<dyn Fn(&Wanted) -> Result<Refusals, SyncError> + Send + Sync>;

/// An API with scripted answers, which records each call and its time.
struct Script {
    asked: Mutex<Vec<(Instant, Wanted)>>,
    answer: Mutex<Answer>,
}

#[async_trait]
impl NodeObjects for Script {
    async fn sync(&self, wanted: &Wanted) -> Result<Refusals, SyncError> {
        self.asked.lock().unwrap().push((Instant::now(), wanted.clone()));
        sleep(SYNC).await;
        (self.answer.lock().unwrap())(wanted)
    }
}

impl Script {
    fn new() -> Arc<Self> {
        Arc::new(Self { asked: Mutex::default(), answer: Mutex::new(Box::new(|_| accepted())) })
    }

    fn start(self: &Arc<Self>) -> NodeRecord {
        let options = RecordOptions { grace: GRACE, patience: PATIENCE };
        NodeRecord::start(Arc::<Self>::clone(self), options)
    }

    fn answers(
        &self,
        answer: impl Fn(&Wanted) -> Result<Refusals, SyncError> + Send + Sync + 'static,
    ) {
        *self.answer.lock().unwrap() = Box::new(answer);
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn times(&self) -> Vec<Instant> {
        self.asked.lock().unwrap().iter().map(|(at, _)| *at).collect()
    }

    fn last(&self) -> Wanted {
        self.asked.lock().unwrap().last().expect("it was asked").1.clone()
    }

    /// `name=node ID` of the drivers in the last call, in their order.
    fn shown(&self) -> Vec<String> {
        let drivers = self.last().drivers;
        drivers.into_iter().map(|(name, info)| format!("{name}={}", info.node_id)).collect()
    }
}

fn accepted() -> Result<Refusals, SyncError> {
    Ok(Refusals::new())
}

fn info(node_id: &str) -> NodeInfo {
    NodeInfo { node_id: node_id.to_owned(), ..NodeInfo::default() }
}

/// Refuses for good every write with the node ID `bad`.
fn not_bad(wanted: &Wanted) -> Result<Refusals, SyncError> {
    match wanted.drivers.iter().any(|(_, info)| info.node_id == "bad") {
        true => Err(SyncError::Permanent("nodeID: not acceptable".into())),
        false => accepted(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_object_is_made_without_drivers_and_strangers_stay_for_the_grace() {
    let script = Script::new();
    let record = script.start();
    sleep(GRACE / 2).await;
    assert_eq!(script.count(), 1);
    assert_eq!(script.last(), Wanted { keep_unknown: true, ..Wanted::default() });
    sleep(GRACE).await;
    assert_eq!(script.count(), 2);
    assert_eq!(script.last(), Wanted::default());
    sleep(GRACE * 100).await;
    assert_eq!(script.count(), 2, "an idle record does not write");
    record.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_back_in_time_changes_nothing() {
    let script = Script::new();
    let record = script.start();
    sleep(GRACE * 2).await;
    record.install("a", info("1")).await.unwrap();
    let written = script.last();
    let before = script.count();
    record.leave("a").await;
    sleep(GRACE - SYNC * 2).await;
    assert_eq!(script.count(), before, "nothing is written while it may come back");
    record.install("a", info("1")).await.unwrap();
    sleep(GRACE * 2).await;
    assert_eq!(script.last().drivers, written.drivers);
    assert_eq!(script.count(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_stays_away_leaves_with_one_write() {
    let script = Script::new();
    let record = script.start();
    sleep(GRACE * 2).await;
    record.install("a", info("1")).await.unwrap();
    record.install("b", info("2")).await.unwrap();
    let before = script.count();
    let left = Instant::now();
    record.leave("a").await;
    sleep(GRACE * 2).await;
    assert_eq!(script.count(), before + 1);
    assert_eq!(script.shown(), ["b=2"]);
    let waited = *script.times().last().unwrap() - left;
    assert!(waited >= GRACE && waited < GRACE + SYNC, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn writes_that_may_work_later_are_tried_with_growing_pauses() {
    let script = Script::new();
    script.answers(|_| Err(SyncError::Transient("down".into())));
    let record = script.start();
    sleep(Duration::from_secs(40)).await;
    let times = script.times();
    let pauses: Vec<_> =
        times.windows(2).map(|two| (two[1] - two[0] - SYNC).as_millis()).take(7).collect();
    assert_eq!(pauses, [10, 50, 250, 1250, 6250, 10_000, 10_000]);

    script.answers(|_| accepted());
    record.install("a", info("1")).await.unwrap();
    script.answers(|_| Err(SyncError::Transient("down".into())));
    record.update("a", info("2")).await;
    sleep(Duration::from_secs(1)).await;
    let times = script.times();
    let first_pauses: Vec<_> =
        times.windows(2).rev().map(|two| (two[1] - two[0] - SYNC).as_millis()).take(3).collect();
    assert_eq!(first_pauses, [250, 50, 10], "a success resets the pauses");
}

#[tokio::test(start_paused = true)]
async fn an_installation_waits_for_the_api_and_no_longer_than_its_patience() {
    let script = Script::new();
    script.answers(|_| Err(SyncError::Transient("down".into())));
    let record = script.start();
    let began = Instant::now();
    let refusal = record.install("a", info("1")).await.unwrap_err();
    assert_eq!(began.elapsed(), PATIENCE);
    assert_eq!(
        refusal.0,
        "error updating CSINode object with CSI driver node info: the Kubernetes API took no write for 120s"
    );
    record.leave("a").await;

    let waiting = record.install("b", info("2"));
    let mend = async {
        sleep(Duration::from_secs(60)).await;
        script.answers(|_| accepted());
    };
    let (installed, ()) = tokio::join!(waiting, mend);
    installed.unwrap();
    assert_eq!(script.shown(), ["b=2"], "a driver that gave up is not written after all");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_cannot_work_refuses_at_once() {
    let script = Script::new();
    script.answers(|_| Err(SyncError::Permanent("annotation: cannot be read".into())));
    let record = script.start();
    sleep(GRACE).await;
    let began = Instant::now();
    let (a, b) = tokio::join!(record.install("a", info("1")), record.install("b", info("2")));
    assert!(began.elapsed() < SYNC * 6, "{:?}", began.elapsed());
    for refusal in [a.unwrap_err(), b.unwrap_err()] {
        assert_eq!(
            refusal.0,
            "error updating CSINode object with CSI driver node info: annotation: cannot be read"
        );
    }
    script.answers(|_| accepted());
    record.install("c", info("3")).await.unwrap();
    assert_eq!(script.shown(), ["c=3"], "refused drivers are not written later");
}

#[tokio::test(start_paused = true)]
async fn one_driver_that_is_not_taken_does_not_stand_in_the_way_of_others() {
    let script = Script::new();
    script.answers(not_bad);
    let record = script.start();
    let names = ["a", "b", "c", "d", "e"];
    let ids = ["1", "bad", "3", "bad", "5"];
    let all = names.iter().zip(ids).map(|(name, id)| record.install(name, info(id)));
    let outcomes: Vec<_> = join_all(all).await.into_iter().map(|it| it.is_ok()).collect();
    assert_eq!(outcomes, [true, false, true, false, true]);
    sleep(GRACE * 2).await;
    assert_eq!(script.shown(), ["a=1", "c=3", "e=5"]);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_is_not_taken_leaves_what_was_written() {
    let script = Script::new();
    script.answers(not_bad);
    let record = script.start();
    record.install("a", info("1")).await.unwrap();
    record.update("a", info("bad")).await;
    record.install("b", info("2")).await.unwrap();
    sleep(GRACE * 2).await;
    assert_eq!(script.shown(), ["a=1", "b=2"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_second_instance_leaves_the_first_one_as_it_was() {
    let script = Script::new();
    script.answers(|wanted| {
        let colliding = wanted.drivers.iter().filter(|(_, info)| info.node_id == "collides");
        Ok(colliding.map(|(name, _)| (name.clone(), "label collision".to_owned())).collect())
    });
    let record = script.start();
    record.install("a", info("1")).await.unwrap();
    let refusal = record.install("a", info("collides")).await.unwrap_err();
    assert_eq!(refusal.0, "error updating Node object with CSI driver node info: label collision");
    sleep(GRACE * 2).await;
    assert_eq!(script.shown(), ["a=1"]);

    record.install("b", info("collides")).await.unwrap_err();
    sleep(GRACE * 2).await;
    assert_eq!(script.shown(), ["a=1", "b=collides"], "nothing to fall back to");
    let before = script.count();
    record.install("a", info("1")).await.unwrap();
    assert_eq!(script.shown(), ["a=1"]);
    assert_eq!(script.count(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn drivers_that_come_together_are_written_together() {
    let script = Script::new();
    let record = script.start();
    let names: Vec<_> = (0..100).map(|number| format!("driver-{number:03}")).collect();
    let outcomes = join_all(names.iter().map(|name| record.install(name, info("1")))).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(script.last().drivers.len(), 100);
    assert!(script.count() <= 3, "{} writes", script.count());
}

#[tokio::test(start_paused = true)]
async fn drivers_keep_the_order_in_which_they_came() {
    let script = Script::new();
    let record = script.start();
    for name in ["c", "a", "b"] {
        record.install(name, info("1")).await.unwrap();
    }
    record.install("c", info("2")).await.unwrap();
    assert_eq!(script.shown(), ["c=2", "a=1", "b=1"]);
}

#[tokio::test(start_paused = true)]
async fn an_update_never_brings_back_a_driver_that_left() {
    let script = Script::new();
    let record = script.start();
    record.update("stranger", info("1")).await;
    record.install("a", info("1")).await.unwrap();
    record.leave("a").await;
    record.update("a", info("2")).await;
    sleep(GRACE / 2).await;
    assert_eq!(script.shown(), ["a=1"]);
    sleep(GRACE * 2).await;
    assert_eq!(script.last(), Wanted::default());
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_everything_written_and_refuses_what_comes_later() {
    let script = Script::new();
    let record = script.start();
    record.install("a", info("1")).await.unwrap();
    record.leave("a").await;
    let before = script.count();
    record.stop().await;
    sleep(GRACE * 3).await;
    assert_eq!(script.count(), before);
    let refusal = record.install("b", info("2")).await.unwrap_err();
    assert_eq!(refusal.0, "error updating CSINode object: the node is stopping");
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_a_node_id_is_refused() {
    let script = Script::new();
    let record = script.start();
    let refusal = record.install("a", info("")).await.unwrap_err();
    assert_eq!(refusal.0, "error adding CSI driver node info: driverNodeID must not be empty");
    sleep(GRACE * 2).await;
    assert_eq!(script.last(), Wanted::default());
}
