//! Claims whose CreateVolume had no final answer: no volume is left at the driver, whatever ends
//! when.

use std::{net::Ipv4Addr, process::Command};

use serde_json::Value;
use wharf_testkit::{
    process::{self, wait_for},
    relay::Relay,
};

use crate::{
    api::PATIENCE,
    audit,
    life::{Life, VOLUMES},
    program::{Kind, Make, Program},
    readiness::Shown,
    role::READER,
    sidecar::{Order, Sidecar},
    site::Site,
};

/// The finalizer.
pub(crate) const MARK: &str = "wharf.dev/unsettled-volume";
/// Calls end soon.
pub(crate) const TIMEOUT: &[&str] = &["--timeout=1s"];
pub(crate) const PROVISIONER: Program = Program::One(Kind::Provisioner, Make::Ours);

pub(crate) fn is_marked(claim: &Value) -> bool {
    let finalizers = claim["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|it| it == MARK))
}

pub(crate) fn start(site: &Site, host: Option<&str>) -> Sidecar {
    Order { more: TIMEOUT, ..site.order(PROVISIONER, host) }.start().unwrap()
}

pub(crate) async fn marked(site: &Site, life: &Life<'_>) {
    site.api.wait(&life.claim(), is_marked).await;
}

/// Waits until the claim is gone, and sees to it that the driver has nothing and that no
/// PersistentVolume was made.
async fn settled(site: &Site, life: &Life<'_>) {
    site.api.gone(&life.claim()).await;
    assert_eq!(site.ledger.volumes(), 0, "a volume is left at the driver");
    let volumes = site.api.get(VOLUMES).await.unwrap();
    let own = |it: &&Value| it["spec"]["claimRef"]["namespace"] == *site.name;
    let volume = volumes["items"].as_array().unwrap().iter().find(own);
    assert!(volume.is_none(), "{volume:?}");
}

#[tokio::test]
async fn a_leader_that_is_killed_leaves_no_volume_of_a_deleted_claim() {
    let Some(site) = Site::new("unsettled-killed").await else { return };
    site.ledger.hold("CreateVolume");
    let mut first = start(&site, Some("first"));
    let life = Life::ask(&site, "data").await;
    site.ledger.held().await;
    marked(&site, &life).await;
    let _second = start(&site, Some("second"));
    life.delete_claim().await;
    assert!(site.api.get(&life.claim()).await.is_some(), "the claim went before its volume");
    first.kill().await;
    site.ledger.release();
    settled(&site, &life).await;
    site.ledger.assert_clean();
    audit::assert_allowed(&site);
}

#[tokio::test]
async fn a_leader_that_loses_its_lease_leaves_no_volume_of_a_deleted_claim() {
    let Some(site) = Site::new("unsettled-lost").await else { return };
    site.ledger.hold("CreateVolume");
    let relay = Relay::open(site.cluster.server(), Ipv4Addr::LOCALHOST).await.unwrap();
    let order = Order { more: TIMEOUT, ..site.order(PROVISIONER, Some("first")) };
    let mut first = Order { server: Some(relay.address()), ..order }.start().unwrap();
    let life = Life::ask(&site, "data").await;
    marked(&site, &life).await;
    let _second = start(&site, Some("second"));
    life.delete_claim().await;
    relay.cut();
    first.said("stopped leading", 1).await;
    site.ledger.release();
    settled(&site, &life).await;
    relay.mend();
    site.ledger.assert_clean();
}

/// The cut comes before the claim is marked, and the claim goes: then no object tells of the
/// volume.
async fn cut_before_the_mark<'a>(site: &'a Site, shown: &Shown) -> (Sidecar, Relay, Life<'a>) {
    site.ledger.hold("CreateVolume");
    let relay = Relay::open(site.cluster.server(), Ipv4Addr::LOCALHOST).await.unwrap();
    let more = ["--timeout=10m", "--http-endpoint", shown.0.as_str()];
    let order = Order { more: &more, ..site.order(PROVISIONER, Some("first")) };
    let mut first = Order { server: Some(relay.address()), ..order }.start().unwrap();
    let life = Life::ask(site, "data").await;
    site.ledger.held().await;
    relay.cut();
    assert!(!is_marked(&site.api.get(&life.claim()).await.unwrap()), "marked too early");
    life.delete_claim().await;
    site.api.gone(&life.claim()).await;
    first.said("stopped leading", 1).await;
    site.ledger.release();
    assert_eq!(site.ledger.volumes(), 1);
    (first, relay, life)
}

const UNSETTLED: &str = "wharf_provisioner_unsettled_volumes";

/// Waits until so many volumes are known to the process alone.
async fn unsettled(shown: &Shown, count: usize) {
    let line = format!("{UNSETTLED} {count}");
    let found = async || shown.get("/metrics").1.lines().any(|it| it == line).then_some(());
    wait_for(PATIENCE, &line, found).await.unwrap();
}

/// Waits until the volume is shown by a PersistentVolume and, as its claim is gone, deleted.
pub(crate) async fn deleted(site: &Site, life: &Life<'_>) {
    site.api.wait(&format!("{VOLUMES}/{}", life.volume()), |_| true).await;
    life.released().await;
}

#[tokio::test]
async fn a_leader_that_leads_again_settles_what_nobody_else_knows() {
    let Some(site) = Site::new("unsettled-again").await else { return };
    let shown = Shown::new();
    let (mut first, relay, life) = cut_before_the_mark(&site, &shown).await;
    relay.mend();
    deleted(&site, &life).await;
    unsettled(&shown, 0).await;
    first.stop().await;
    site.ledger.assert_clean();
}

#[tokio::test]
async fn a_replica_tells_what_only_it_knows_while_another_leads() {
    let Some(site) = Site::new("unsettled-told").await else { return };
    for make in [Make::Ours, Make::Go] {
        let shown = Shown::new();
        let (mut first, relay, life) = cut_before_the_mark(&site, &shown).await;
        let Some(mut second) = site.start_elected(Kind::Provisioner, make) else { return };
        site.term(&Kind::Provisioner.lease(&site.name), |holder| holder != "first").await;
        relay.mend();
        first.said("volume of a deleted claim may be left at the driver", 1).await;
        unsettled(&shown, 1).await;
        second.stop().await;
        deleted(&site, &life).await;
        unsettled(&shown, 0).await;
        first.stop().await;
        site.ledger.assert_clean();
    }
}

/// The claim stays, so that the next leader can know.
#[tokio::test]
async fn a_replica_marks_what_it_began_while_another_leads() {
    let Some(site) = Site::new("unsettled-handed").await else { return };
    let (door, socket) = site.open("first.sock");
    let relay = Relay::open(site.cluster.server(), Ipv4Addr::LOCALHOST).await.unwrap();
    let order =
        Order { socket, more: &["--timeout=10m"], ..site.order(PROVISIONER, Some("first")) };
    let mut first = Order { server: Some(relay.address()), ..order }.start().unwrap();
    door.hold("CreateVolume");
    let life = Life::ask(&site, "data").await;
    site.ledger.held().await;
    relay.cut();
    // Its driver is down for the other, which would finish the volume else.
    site.ledger.take_down("CreateVolume");
    let order = Order { user: READER, more: TIMEOUT, ..site.order(PROVISIONER, Some("second")) };
    let mut second = order.start().unwrap();
    site.term(&Kind::Provisioner.lease(&site.name), |holder| holder == "second").await;
    assert!(!is_marked(&site.api.get(&life.claim()).await.unwrap()));
    relay.mend();
    marked(&site, &life).await;
    // Whoever leads next finds out, although the first is gone.
    first.kill().await;
    second.kill().await;
    life.delete_claim().await;
    site.ledger.release();
    site.ledger.bring_back("CreateVolume");
    let _third = start(&site, Some("third"));
    settled(&site, &life).await;
    site.ledger.assert_clean();
}

#[tokio::test]
async fn a_claim_that_is_deleted_while_no_provisioner_runs_leaves_no_volume() {
    let Some(site) = Site::new("unsettled-alone").await else { return };
    site.ledger.hold("CreateVolume");
    let mut provisioner = start(&site, None);
    let life = Life::ask(&site, "data").await;
    marked(&site, &life).await;
    provisioner.kill().await;
    site.ledger.release();
    life.delete_claim().await;
    assert_eq!(site.ledger.volumes(), 1);
    provisioner.start_again();
    settled(&site, &life).await;
    site.ledger.assert_clean();
}

/// The claim stays, and so does its volume.
#[tokio::test]
async fn a_claim_is_served_whenever_its_provisioner_is_killed() {
    let Some(site) = Site::new("unsettled-served").await else { return };
    let relay = Relay::open(site.cluster.server(), Ipv4Addr::LOCALHOST).await.unwrap();
    let order = Order { more: TIMEOUT, ..site.order(PROVISIONER, None) };
    let mut provisioner = Order { server: Some(relay.address()), ..order }.start().unwrap();
    let mut lives = Vec::new();
    // Between the answer, which is none, and the mark.
    site.ledger.hold("CreateVolume");
    let life = Life::ask(&site, "unmarked").await;
    site.ledger.held().await;
    relay.cut();
    provisioner.said("CreateVolume has no final answer", 1).await;
    provisioner.kill().await;
    assert!(!is_marked(&site.api.get(&life.claim()).await.unwrap()));
    relay.mend();
    provisioner.start_again();
    marked(&site, &life).await;
    lives.push(life);
    // Between the mark and the next call.
    provisioner.kill().await;
    site.ledger.release();
    provisioner.start_again();
    // Between the driver's work for the next call and the answer.
    site.ledger.take_down("CreateVolume");
    let life = Life::ask(&site, "down").await;
    marked(&site, &life).await;
    site.ledger.hold("CreateVolume");
    site.ledger.bring_back("CreateVolume");
    site.ledger.held().await;
    provisioner.kill().await;
    site.ledger.release();
    provisioner.start_again();
    lives.push(life);
    for life in &lives {
        life.bind().await;
        site.api.wait(&life.claim(), |claim| !is_marked(claim)).await;
    }
    site.ledger.assert_single();
    assert_eq!(site.ledger.volumes(), lives.len());
    for life in lives {
        life.end().await;
    }
    site.ledger.assert_clean();
}

#[tokio::test]
async fn a_deleted_claim_is_settled_whenever_its_provisioner_is_killed() {
    let Some(site) = Site::new("unsettled-settled").await else { return };
    let mut provisioner = start(&site, None);
    for rpc in ["CreateVolume", "DeleteVolume"] {
        site.ledger.take_down("CreateVolume");
        let life = Life::ask(&site, &rpc.to_lowercase()).await;
        marked(&site, &life).await;
        site.ledger.hold(rpc);
        life.delete_claim().await;
        site.ledger.bring_back("CreateVolume");
        // Between the driver's work and its answer, which is before the write that would tell of
        // it.
        site.ledger.held().await;
        provisioner.kill().await;
        assert!(is_marked(&site.api.get(&life.claim()).await.unwrap()), "{rpc}");
        site.ledger.release();
        provisioner.start_again();
        settled(&site, &life).await;
        // A volume that is deleted already is made and deleted once more: only its name is known
        // then.
        if rpc == "CreateVolume" {
            site.ledger.assert_clean();
        }
    }
}

#[tokio::test]
async fn a_mark_that_go_has_bound_its_claim_under_is_removed() {
    let Some(site) = Site::new("unsettled-go").await else { return };
    site.ledger.hold("CreateVolume");
    let mut ours = start(&site, None);
    let life = Life::ask(&site, "data").await;
    marked(&site, &life).await;
    ours.kill().await;
    site.ledger.release();
    let Some(mut go) = site.start(Kind::Provisioner, Make::Go) else { return };
    life.bind().await;
    go.stop().await;
    assert!(is_marked(&site.api.get(&life.claim()).await.unwrap()), "Go removed the mark");
    life.delete_claim().await;
    ours.start_again();
    site.api.gone(&life.claim()).await;
    assert_eq!(site.ledger.volumes(), 1, "the volume of a PersistentVolume was deleted");
    life.released().await;
    site.ledger.assert_clean();
}

#[tokio::test]
async fn an_operator_removes_marks_on_the_way_back_to_go() {
    let Some(site) = Site::new("unsettled-settle").await else { return };
    site.ledger.hold("CreateVolume");
    let mut ours = start(&site, None);
    let (stays, goes) = (Life::ask(&site, "stays").await, Life::ask(&site, "goes").await);
    for life in [&stays, &goes] {
        marked(&site, life).await;
    }
    ours.kill().await;
    site.ledger.release();
    goes.delete_claim().await;
    let why = wharf(&site, &["why", "pvc/goes", "-n", &site.name]).await;
    assert!(why.contains("CreateVolume has no final answer"), "{why}");
    let status = wharf(&site, &["status", "-n", &site.name]).await;
    assert!(status.contains("unsettled-settle/stays"), "{status}");

    let settle = ["sidecars", "settle", "--driver", &site.name];
    let asked = process::output(&command(&site, &settle), PATIENCE).await.unwrap();
    assert!(!asked.status.success(), "it went on without an answer");
    let listed = String::from_utf8(asked.stdout).unwrap();
    for life in [&stays, &goes] {
        assert!(listed.contains(life.volume()), "{listed}");
        assert!(is_marked(&site.api.get(&life.claim()).await.unwrap()));
    }
    wharf(&site, &[&settle[..], &["--yes"]].concat()).await;
    site.api.gone(&goes.claim()).await;
    assert!(!is_marked(&site.api.get(&stays.claim()).await.unwrap()));
    let none = wharf(&site, &settle).await;
    assert!(none.contains("No claim of driver unsettled-settle"), "{none}");

    let Some(_go) = site.start(Kind::Provisioner, Make::Go) else { return };
    stays.bind().await;
    stays.end().await;
    // It was told of.
    assert_eq!(site.ledger.volumes(), 1);
}

pub(crate) fn command(site: &Site, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    command.args(arguments).arg("--kubeconfig").arg(site.cluster.kubeconfig());
    command
}

pub(crate) async fn wharf(site: &Site, arguments: &[&str]) -> String {
    process::run(&command(site, arguments), PATIENCE).await.unwrap()
}

/// CreateSnapshot needs no mark of ours: that of upstream is on the content.
#[tokio::test]
async fn a_snapshotter_that_is_killed_leaves_no_snapshot_of_a_deleted_one() {
    let Some(site) = Site::with_snapshots("unsettled-snapshot").await else { return };
    let beside = [Kind::Provisioner, Kind::SnapshotController];
    let _beside = beside.map(|kind| site.start(kind, Make::Ours).unwrap());
    let mut snapshotter = site.start(Kind::Snapshotter, Make::Ours).unwrap();
    let life = Life::begin(&site, "data").await;
    site.ledger.hold("CreateSnapshot");
    let snapshot = life.ask_for_snapshot().await;
    site.ledger.held().await;
    snapshotter.kill().await;
    site.ledger.release();
    site.api.delete(&snapshot).await;
    snapshotter.start_again();
    site.api.gone(&snapshot).await;
    life.end().await;
    site.ledger.assert_clean();
}
