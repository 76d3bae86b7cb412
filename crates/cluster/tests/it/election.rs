//! Elections with a real API and replicas that die, stand by, are cut off or are client-go's.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use wharf_cluster::{
    Election, ElectionHealth, ElectionMetrics, ElectionOptions, ElectionTiming, Ended,
    ReplicaIdentity, election::LeaseLost,
};
use wharf_testkit::{cluster::Cluster, process::wait_for};

const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(4);
/// The delay that a loaded machine may add.
const SLACK: Duration = Duration::from_secs(1);

/// A replica of a controller, leading or not.
struct Replica {
    tasks: JoinSet<Result<Option<()>, LeaseLost>>,
    leading: watch::Receiver<bool>,
    stop: CancellationToken,
    health: ElectionHealth,
}

impl Replica {
    async fn start(cluster: &Cluster, lease: &str, identity: &str) -> Result<Self> {
        Self::with(cluster, quick(lease, identity)).await
    }

    async fn with(cluster: &Cluster, options: ElectionOptions) -> Result<Self> {
        let client = wharf_cluster::connect(Some(cluster.kubeconfig())).await?;
        let metrics = ElectionMetrics::register(&mut Registry::default());
        let health = ElectionHealth::default();
        let election = Election::new(client, options, health.clone(), &metrics);
        let (leads, leading) = watch::channel(false);
        let stop = CancellationToken::new();
        let told = stop.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let outcome = election.run(&told, |term| async {
                leads.send_replace(true);
                term.stop.cancelled_owned().await;
                Ended::Done(())
            });
            let outcome = outcome.await;
            leads.send_replace(false);
            outcome
        });
        Ok(Self { tasks, leading, stop, health })
    }

    async fn leads(&mut self) -> Result<()> {
        let became = timeout(PATIENCE, self.leading.wait_for(|leads| *leads)).await;
        became.context("it never leads")?.context("its task ended")?;
        Ok(())
    }

    async fn outcome(&mut self) -> Result<Result<Option<()>, LeaseLost>> {
        let joined = timeout(PATIENCE, self.tasks.join_next()).await.context("it never ends")?;
        Ok(joined.context("a task")??)
    }
}

fn quick(lease: &str, identity: &str) -> ElectionOptions {
    let (renew, retry) = (Duration::from_secs(3), Duration::from_secs(1));
    ElectionOptions {
        namespace: "default".to_owned(),
        name: lease.to_owned(),
        identity: ReplicaIdentity::unique(identity),
        labels: BTreeMap::from([("app".to_owned(), "csi".to_owned())]),
        timing: ElectionTiming::new(LEASE, renew, retry).unwrap(),
        release: false,
    }
}

async fn lease(cluster: &Cluster, name: &str) -> Result<Value> {
    cluster.get(&["lease", name]).await?.context("no Lease")
}

/// The Lease's spec once `holder` has it.
async fn held_by(cluster: &Cluster, name: &str, holder: &str) -> Result<Value> {
    wait_for(PATIENCE, &format!("{holder} to hold {name}"), || async {
        let spec = lease(cluster, name).await.ok()?["spec"].take();
        (spec["holderIdentity"] == holder).then_some(spec)
    })
    .await
}

#[tokio::test]
async fn the_lease_of_a_killed_leader_is_taken_over_when_it_expires() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let mut leader = Replica::start(cluster, "killed", "a").await?;
    leader.leads().await?;
    let mut standby = Replica::start(cluster, "killed", "b").await?;

    let first = lease(cluster, "killed").await?;
    assert_eq!(first["metadata"]["labels"], json!({ "app": "csi" }));
    assert_eq!(first["spec"]["leaseDurationSeconds"], 4);
    assert_eq!(first["spec"]["leaseTransitions"], 0);
    for time in ["acquireTime", "renewTime"] {
        let time = first["spec"][time].as_str().context("a time")?;
        assert_eq!(time.len(), "2026-11-16T05:00:00.123456Z".len(), "{time}");
    }

    wait_for(PATIENCE, "renewals for longer than a lease", || async {
        let now = lease(cluster, "killed").await.ok()?;
        let renewed =
            |lease: &Value| lease["spec"]["renewTime"].as_str()?.parse::<Timestamp>().ok();
        let since = renewed(&now)?.duration_since(renewed(&first)?);
        (since.as_secs_f64() > LEASE.as_secs_f64() + 1.0).then_some(())
    })
    .await?;
    assert!(!*standby.leading.borrow(), "two lead");
    assert_eq!(leader.health.check(), Ok(()));

    leader.tasks.abort_all();
    let killed = Instant::now();
    standby.leads().await?;
    let took = killed.elapsed();
    assert!(took <= LEASE + SLACK, "{took:?}");
    let spec = held_by(cluster, "killed", "b").await?;
    assert_eq!(spec["leaseTransitions"], 1);
    assert_ne!(spec["acquireTime"], first["spec"]["acquireTime"]);
    Ok(())
}

#[tokio::test]
async fn a_leader_that_is_told_to_release_hands_over_at_once() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let options = ElectionOptions { release: true, ..quick("released", "a") };
    let mut leader = Replica::with(cluster, options).await?;
    leader.leads().await?;
    let mut standby = Replica::start(cluster, "released", "b").await?;
    // It is a standby once it has read the Lease; it sees the first renewal after that in its
    // watch.
    let renewed = lease(cluster, "released").await?["spec"]["renewTime"].clone();
    wait_for(PATIENCE, "a renewal", || async {
        let now = lease(cluster, "released").await.ok()?["spec"]["renewTime"].clone();
        (now != renewed).then_some(())
    })
    .await?;

    leader.stop.cancel();
    let stopped = Instant::now();
    assert_eq!(leader.outcome().await?, Ok(Some(())));
    standby.leads().await?;
    assert!(stopped.elapsed() <= SLACK, "{:?}", stopped.elapsed());
    assert_eq!(held_by(cluster, "released", "b").await?["leaseTransitions"], 1);
    Ok(())
}

#[tokio::test]
async fn someone_else_s_lease_is_respected_and_its_loss_is_believed() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let foreign = |transitions: u32, seconds: u32| {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "foreign", "namespace": "default" },
            "spec": {
                "holderIdentity": "csi-attacher-0",
                "leaseDurationSeconds": seconds,
                "acquireTime": "2020-01-01T00:00:00.123456Z",
                "renewTime": "2020-01-01T00:00:00.123456Z",
                "leaseTransitions": transitions,
            },
        })
    };
    cluster.apply(&foreign(4, 3)).await?;
    let began = Instant::now();
    let mut replica = Replica::start(cluster, "foreign", "b").await?;
    replica.leads().await?;
    // By the written times the Lease expired years ago; only observed changes count.
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(held_by(cluster, "foreign", "b").await?["leaseTransitions"], 5);

    // Another replica overwrites it, as one does whose clock or network stood still.
    let path = cluster.folder().join("foreign.json");
    std::fs::write(&path, foreign(6, 15).to_string())?;
    let path = path.to_str().context("a path that is text")?;
    assert!(cluster.kubectl(&["replace", "--filename", path]).await?.status.success());
    let lost = replica.outcome().await?.unwrap_err().to_string();
    assert_eq!(lost, "Lease foreign is lost: csi-attacher-0 holds it now");
    assert!(!*replica.leading.borrow());
    assert_eq!(lease(cluster, "foreign").await?["spec"]["holderIdentity"], "csi-attacher-0");
    Ok(())
}

#[tokio::test]
async fn an_edited_or_deleted_lease_is_still_held() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let mut leader = Replica::start(cluster, "edited", "a").await?;
    leader.leads().await?;
    let edit = ["annotate", "lease", "edited", "example.com/note=mine"];
    assert!(cluster.kubectl(&edit).await?.status.success());
    let before = lease(cluster, "edited").await?;
    let after = wait_for(PATIENCE, "a renewal", || async {
        let now = lease(cluster, "edited").await.ok()?;
        (now["spec"]["renewTime"] != before["spec"]["renewTime"]).then_some(now)
    })
    .await?;
    assert_eq!(after["metadata"]["annotations"]["example.com/note"], "mine");

    assert!(cluster.kubectl(&["delete", "lease", "edited"]).await?.status.success());
    held_by(cluster, "edited", "a").await?;
    assert!(*leader.leading.borrow());
    leader.stop.cancel();
    assert_eq!(leader.outcome().await?, Ok(Some(())));
    Ok(())
}

#[tokio::test]
async fn an_outage_costs_the_lease_only_if_it_outlasts_the_deadline() -> Result<()> {
    let Some(mut cluster) = Cluster::builder().start().await? else { return Ok(()) };
    let patient = ElectionOptions {
        timing: ElectionTiming::new(PATIENCE * 3, PATIENCE * 2, Duration::from_secs(1)).unwrap(),
        ..quick("patient", "a")
    };
    let mut patient = Replica::with(&cluster, patient).await?;
    let mut hasty = Replica::start(&cluster, "hasty", "a").await?;
    patient.leads().await?;
    hasty.leads().await?;

    cluster.stop_apiserver().await?;
    let lost = hasty.outcome().await?.unwrap_err().to_string();
    assert!(lost.starts_with("Lease hasty is lost: not renewed for 3."), "{lost}");
    assert!(!*hasty.leading.borrow());
    cluster.start_apiserver().await?;

    let before = lease(&cluster, "patient").await?["spec"]["renewTime"].clone();
    wait_for(PATIENCE, "a renewal after the outage", || async {
        let now = lease(&cluster, "patient").await.ok()?["spec"]["renewTime"].clone();
        (now != before).then_some(())
    })
    .await?;
    assert!(*patient.leading.borrow());
    // The replica that lost may be a candidate again, and gets its own Lease back without waiting.
    let mut again = Replica::start(&cluster, "hasty", "a").await?;
    again.leads().await?;
    assert_eq!(held_by(&cluster, "hasty", "a").await?["leaseTransitions"], 0);
    for mut replica in [patient, again] {
        replica.stop.cancel();
        assert_eq!(replica.outcome().await?, Ok(Some(())));
    }
    cluster.stop().await
}
