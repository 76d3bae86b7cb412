mod names;

use std::{sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, advance, timeout},
};

use super::*;
use crate::lease::fake::FakeLease;

const SECOND: Duration = Duration::from_secs(1);
/// A deadline beyond all waits.
const PATIENCE: Duration = Duration::from_secs(300);

/// Replicas, each a task with an observable state.
struct Replica {
    tasks: JoinSet<Result<Option<()>, LeaseLost>>,
    leading: watch::Receiver<bool>,
    stop: CancellationToken,
}

impl Replica {
    fn start(api: &FakeLease, identity: &str) -> Self {
        Self::with(api, identity, false)
    }

    fn with(api: &FakeLease, identity: &str, release: bool) -> Self {
        let election = election(api, identity, release);
        let (leads, leading) = watch::channel(false);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let told = stop.clone();
        tasks.spawn(async move {
            election
                .run(&told, |term| async move {
                    let _dropped = Leading::new(&leads);
                    term.stop.cancelled().await;
                    Ended::Done(())
                })
                .await
        });
        Self { tasks, leading, stop }
    }

    async fn leads(&mut self) {
        let became = timeout(PATIENCE, self.leading.wait_for(|leads| *leads)).await;
        became.expect("it never leads").expect("its task ended");
    }

    async fn outcome(&mut self) -> Result<Option<()>, LeaseLost> {
        let joined = timeout(PATIENCE, self.tasks.join_next()).await.expect("it never ends");
        joined.unwrap().unwrap()
    }
}

/// Reports when work begins and when it is dropped.
struct Leading(watch::Sender<bool>);

impl Leading {
    fn new(leads: &watch::Sender<bool>) -> Self {
        leads.send_replace(true);
        Self(leads.clone())
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

fn election(api: &FakeLease, identity: &str, release: bool) -> Election<FakeLease> {
    let options = ElectionOptions {
        namespace: "storage".to_owned(),
        name: "external-attacher-leader-x".to_owned(),
        identity: ReplicaIdentity::unique(identity),
        labels: BTreeMap::new(),
        timing: ElectionTiming::default(),
        release,
    };
    let metrics = ElectionMetrics::register(&mut Registry::default());
    Election::with_api(api.clone(), options, ElectionHealth::default(), &metrics)
}

/// A Lease that a replica of client-go holds.
fn foreign(holder: &str, seconds: u32) -> Lease {
    let times = json!("2026-11-16T05:00:00.123456Z");
    Lease(json!({
        "metadata": { "name": "external-attacher-leader-x", "namespace": "storage" },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": times,
            "renewTime": times,
            "leaseTransitions": 4,
        },
    }))
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_with_one_write_per_period() {
    let api = FakeLease::new();
    let mut leader = Replica::start(&api, "a");
    leader.leads().await;
    assert_eq!(api.take_calls(), ["read", "create"]);
    sleep(SECOND * 21).await;
    assert_eq!(api.take_calls(), ["replace"; 4]);
    let lease = api.lease();
    assert_eq!((lease.holder(), lease.duration()), ("a", SECOND * 15));
    assert_eq!(lease.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_when_the_lease_has_been_still_for_its_duration() {
    let api = FakeLease::new();
    let mut leader = Replica::start(&api, "a");
    leader.leads().await;
    let mut standby = Replica::start(&api.elsewhere(), "b");
    sleep(SECOND * 102).await;
    assert!(!*standby.leading.borrow(), "two lead");

    // kill -9: the Lease is not released.
    leader.tasks.abort_all();
    let killed = Instant::now();
    standby.leads().await;
    let took = killed.elapsed();
    assert!(took > SECOND * 10 && took <= SECOND * 15, "{took:?}");
    assert_eq!(api.lease().spec()["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_may_not_watch_asks_as_client_go_does() {
    let api = FakeLease::new();
    let mut leader = Replica::start(&api, "a");
    leader.leads().await;
    let elsewhere = api.elsewhere().without_watch();
    let mut standby = Replica::start(&elsewhere, "b");
    sleep(SECOND * 110).await;
    let calls = elsewhere.take_calls();
    let watches = calls.iter().filter(|call| **call == "versions").count();
    assert_eq!(watches, 1, "a refused watch is not asked for again: {calls:?}");
    assert!((11..=23).contains(&calls.len()), "{calls:?}");

    leader.tasks.abort_all();
    let killed = Instant::now();
    standby.leads().await;
    assert!(killed.elapsed() <= SECOND * 26, "{:?}", killed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_client_go_is_respected_for_as_long_as_it_says() {
    let api = FakeLease::new();
    api.put(foreign("csi-0-with-go", 40));
    let mut standby = Replica::start(&api, "b");
    let began = Instant::now();
    standby.leads().await;
    let waited = began.elapsed();
    assert!(waited >= SECOND * 40 && waited < SECOND * 41, "{waited:?}");
    assert_eq!(api.lease().spec()["leaseTransitions"], 5);
}

#[tokio::test(start_paused = true)]
async fn changes_beside_the_record_are_no_sign_of_life() {
    let api = FakeLease::new();
    api.put(foreign("csi-0-with-go", 15));
    let mut standby = Replica::start(&api, "b");
    let began = Instant::now();
    for _ in 0..3 {
        sleep(SECOND * 4).await;
        let mut lease = api.lease();
        lease.0["metadata"]["annotations"]["looked"] = json!(began.elapsed().as_secs());
        api.put(lease);
    }
    standby.leads().await;
    assert!(began.elapsed() < SECOND * 16, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let api = FakeLease::new();
    let mut leader = Replica::with(&api, "a", true);
    leader.leads().await;
    let mut standby = Replica::start(&api.elsewhere(), "b");
    sleep(SECOND * 7).await;
    leader.stop.cancel();
    let stopped = Instant::now();
    assert_eq!(leader.outcome().await, Ok(Some(())));
    standby.leads().await;
    assert!(stopped.elapsed() < SECOND, "{:?}", stopped.elapsed());
    assert_eq!(api.lease().spec()["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_released_unasked() {
    let api = FakeLease::new();
    let mut leader = Replica::start(&api, "a");
    leader.leads().await;
    leader.stop.cancel();
    assert_eq!(leader.outcome().await, Ok(Some(())));
    assert_eq!(api.lease().holder(), "a");
    // A replica of the same name continues where it stopped.
    let began = Instant::now();
    Replica::start(&api, "a").leads().await;
    assert!(began.elapsed() < SECOND);
    assert_eq!(api.lease().spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_stopped_never_led() {
    let api = FakeLease::new();
    api.put(foreign("csi-0-with-go", 15));
    let mut standby = Replica::with(&api, "b", true);
    sleep(SECOND).await;
    standby.stop.cancel();
    assert_eq!(standby.outcome().await, Ok(None));
    assert_eq!(api.lease().holder(), "csi-0-with-go", "a Lease of others was released");
}

#[tokio::test(start_paused = true)]
async fn an_outage_within_the_renew_deadline_is_survived() {
    let api = FakeLease::new();
    let mut leader = Replica::start(&api, "a");
    leader.leads().await;
    for silent in [false, true] {
        sleep(Duration::from_millis(4_900)).await;
        let cut = |cut| if silent { api.silence(cut) } else { api.outage(cut) };
        cut(true);
        sleep(Duration::from_millis(8_500)).await;
        cut(false);
        sleep(SECOND * 6).await;
        assert!(*leader.leading.borrow(), "an outage of 8.5 s, silent: {silent}");
    }
}

/// The Lease has expired by then, and no replica leads before one notices.
#[tokio::test(start_paused = true)]
async fn a_replica_leads_within_a_second_or_two_of_the_return_of_the_api() {
    for outage in 0..20 {
        let api = FakeLease::new();
        api.outage(true);
        let mut replica = Replica::start(&api, "a");
        sleep(SECOND * 20 + SECOND * outage / 10).await;
        api.outage(false);
        let back = Instant::now();
        replica.leads().await;
        assert!(back.elapsed() <= SECOND * 2, "{:?} after the API was back", back.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn work_ends_before_others_may_lead_when_the_api_stays_away() {
    for silent in [false, true] {
        let api = FakeLease::new();
        let mut leader = Replica::start(&api, "a");
        leader.leads().await;
        let renewed = Instant::now();
        let mut standby = Replica::start(&api.elsewhere(), "b");
        if silent {
            api.silence(true);
        } else {
            api.outage(true);
        }

        let lost = leader.outcome().await.unwrap_err().to_string();
        assert!(
            lost.starts_with("Lease external-attacher-leader-x is lost: not renewed"),
            "{lost}"
        );
        assert!(!*leader.leading.borrow());
        let given_up = renewed.elapsed();
        assert!(given_up > SECOND * 13 && given_up <= SECOND * 14, "{given_up:?}");
        standby.leads().await;
        assert!(renewed.elapsed() > given_up, "two led");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_sees_another_holder_stops_with_that() {
    let api = FakeLease::new();
    let mut leader = Replica::start(&api, "a");
    leader.leads().await;
    api.put(foreign("csi-0-with-go", 15));
    let taken = Instant::now();
    let lost = leader.outcome().await.unwrap_err().to_string();
    assert_eq!(lost, "Lease external-attacher-leader-x is lost: csi-0-with-go holds it now");
    assert!(taken.elapsed() <= SECOND * 5);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_is_no_takeover_is_survived() {
    let api = FakeLease::new();
    let mut leader = Replica::start(&api, "a");
    leader.leads().await;
    api.take_calls();
    let mut lease = api.lease();
    lease.0["metadata"]["annotations"]["kubectl"] = json!("was here");
    api.put(lease);
    sleep(SECOND * 11).await;
    assert_eq!(api.take_calls(), ["replace", "read", "replace", "replace"]);
    assert_eq!(api.lease().0["metadata"]["annotations"]["kubectl"], "was here");

    api.delete();
    sleep(SECOND * 5).await;
    assert!(*leader.leading.borrow());
    assert_eq!(api.lease().holder(), "a");
}

#[tokio::test(start_paused = true)]
async fn of_many_one_leads() {
    let api = FakeLease::new();
    let mut replicas: Vec<_> =
        (0..5).map(|n| Replica::start(&api.elsewhere(), &format!("r{n}"))).collect();
    for _ in 0..5 {
        sleep(SECOND * 20).await;
        let leaders: Vec<usize> =
            (0..replicas.len()).filter(|&n| *replicas[n].leading.borrow()).collect();
        assert_eq!(leaders.len(), 1, "{leaders:?}");
        replicas.remove(leaders[0]).tasks.abort_all();
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_leader_finds_out_before_it_writes() {
    let api = FakeLease::new();
    let work = Arc::new(watch::Sender::new(false));
    let election = election(&api, "a", false);
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let leads = work.clone();
    tasks.spawn(async move {
        election
            .run(&stop, |term| async move {
                let _dropped = Leading::new(&leads);
                term.stop.cancelled().await;
                Ended::Done(())
            })
            .await
    });
    timeout(PATIENCE, work.subscribe().wait_for(|leads| *leads)).await.unwrap().unwrap();
    api.silence(true);
    advance(SECOND * 60).await;
    let lost = timeout(SECOND, tasks.join_next()).await.unwrap().unwrap().unwrap();
    assert!(lost.is_err(), "{lost:?}");
    assert!(!*work.borrow());
}

#[tokio::test(start_paused = true)]
async fn a_leader_knows_until_when_no_other_can_lead() {
    let api = FakeLease::new();
    let election = election(&api, "a", false);
    let stop = CancellationToken::new();
    let (tell, told) = tokio::sync::oneshot::channel();
    let work = async |term: Term| {
        tell.send(term.held_until).unwrap();
        term.stop.cancelled().await;
        Ended::Done(())
    };
    let follow = async {
        let mut until = told.await.unwrap();
        for _ in 0..3 {
            let left = until.borrow_and_update().duration_since(Instant::now());
            assert!(left > SECOND * 13 && left <= SECOND * 14, "{left:?}");
            until.changed().await.unwrap();
        }
        api.silence(true);
        let last = *until.borrow_and_update();
        assert!(until.changed().await.is_err(), "renewed without an answer");
        assert!(Instant::now() <= last, "still at work when another may lead");
    };
    let (lost, ()) = tokio::join!(election.run(&stop, work), follow);
    assert!(lost.is_err(), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_knows_whether_another_led_since() {
    let api = FakeLease::new();
    let (stop, election) = (CancellationToken::new(), election(&api, "a", false));
    let term = async || {
        let resumed = election.run(&stop, async |term| Ended::Unfinished(term.resumed)).await;
        resumed.unwrap().unwrap()
    };
    assert!(!term().await, "its first term");
    assert!(term().await);
    api.put(foreign("b", 1));
    assert!(!term().await);
    assert!(term().await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_given_back_as_the_work_ended() {
    for (release, ended, holder) in [
        (false, Ended::Done(()), "a"),
        (true, Ended::Done(()), ""),
        (false, Ended::Resigned(()), ""),
        (true, Ended::Unfinished(()), "a"),
    ] {
        let api = FakeLease::new();
        let election = election(&api, "a", release);
        election.run(&CancellationToken::new(), async |_| ended).await.unwrap();
        assert_eq!(api.lease().holder(), holder, "{release} {ended:?}");
    }
}
