//! kill -9 between a call and a write of a mark, or between two writes, where the driver is not at
//! work.
//!
//! A write that nobody is told of is made by a relay that carries requests and no answers: what it
//! was about is so, and its process does not go on.

use std::net::Ipv4Addr;

use serde_json::Value;
use wharf_facts::annotation::SNAPSHOT_BEING_CREATED;
use wharf_testkit::relay::Relay;

use crate::{
    life::{CONTENTS, Life, VOLUMES},
    program::{Kind, Make, Program},
    sidecar::{Order, Sidecar},
    site::Site,
    unsettled::{is_marked, marked},
};

/// A controller that reaches the API by a relay.
async fn relayed(site: &Site, kind: Kind) -> (Sidecar, Relay) {
    let relay = Relay::open(site.cluster.server(), Ipv4Addr::LOCALHOST).await.unwrap();
    let order = site.order(Program::One(kind, Make::Ours), None);
    let order = Order { server: Some(relay.address()), more: &["--timeout=10s"], ..order };
    (order.start().unwrap(), relay)
}

/// Waits until an event was written for each call that failed, of all that there were: then no
/// request is under way, and one of the connections that are kept carries the next. No other can be
/// made once answers are held back.
async fn is_quiet(site: &Site, rpc: &str, namespace: &str) {
    let failed = site.ledger.calls(rpc) - 1;
    let text = format!("{rpc} is down");
    let of = |event: &&Value| event["message"].as_str().is_some_and(|it| it.contains(&text));
    let told = |all: &Value| {
        let events = all["items"].as_array().unwrap().iter().filter(of);
        events.map(|event| event["count"].as_u64().unwrap_or(1)).sum::<u64>() as usize
    };
    let path = format!("/api/v1/namespaces/{namespace}/events");
    site.api.wait(&path, |all| told(all) >= failed).await;
}

/// Kills a provisioner that has written the PersistentVolume of a marked claim, and has not removed
/// the mark.
async fn killed_before_the_mark_goes<'a>(
    site: &'a Site,
    name: &str,
    provisioner: &mut Sidecar,
    relay: &Relay,
) -> Life<'a> {
    site.ledger.take_down("CreateVolume");
    let life = Life::ask(site, name).await;
    marked(site, &life).await;
    site.ledger.hold("CreateVolume");
    site.ledger.bring_back("CreateVolume");
    site.ledger.held().await;
    is_quiet(site, "CreateVolume", &site.name).await;
    relay.cut_back();
    site.ledger.release();
    site.api.wait(&format!("{VOLUMES}/{}", life.volume()), |_| true).await;
    provisioner.kill().await;
    relay.mend();
    assert!(is_marked(&site.api.get(&life.claim()).await.unwrap()), "the mark went already");
    life
}

#[tokio::test]
async fn a_mark_is_removed_although_its_provisioner_is_killed_after_it_wrote_the_volume() {
    let Some(site) = Site::new("kill-bound").await else { return };
    let (mut provisioner, relay) = relayed(&site, Kind::Provisioner).await;
    let life = killed_before_the_mark_goes(&site, "data", &mut provisioner, &relay).await;
    let calls = site.ledger.calls("CreateVolume");
    provisioner.start_again();
    site.api.wait(&life.claim(), |claim| !is_marked(claim)).await;
    assert_eq!(site.ledger.calls("CreateVolume"), calls, "the driver was asked again");
    assert_eq!(site.ledger.volumes(), 1);
    life.bind().await;
    life.end().await;
    provisioner.stop().await;
    site.ledger.assert_clean();
}

#[tokio::test]
async fn a_claim_that_is_deleted_then_goes_and_its_volume_is_deleted_as_any_other() {
    let Some(site) = Site::new("kill-deleted").await else { return };
    let (mut provisioner, relay) = relayed(&site, Kind::Provisioner).await;
    let life = killed_before_the_mark_goes(&site, "data", &mut provisioner, &relay).await;
    life.delete_claim().await;
    provisioner.start_again();
    site.api.gone(&life.claim()).await;
    // The volume is that of a PersistentVolume, and is not deleted past it.
    assert_eq!((site.ledger.volumes(), site.ledger.calls("DeleteVolume")), (1, 0));
    life.released().await;
    provisioner.stop().await;
    site.ledger.assert_clean();
}

/// The next leader is Go's, which does not know the mark, and then one of ours.
#[tokio::test]
async fn a_mark_is_removed_by_the_next_of_ours_when_go_has_led_meanwhile() {
    let Some(site) = Site::new("kill-go").await else { return };
    let (mut provisioner, relay) = relayed(&site, Kind::Provisioner).await;
    let life = killed_before_the_mark_goes(&site, "data", &mut provisioner, &relay).await;
    let Some(mut go) = site.start(Kind::Provisioner, Make::Go) else { return };
    life.bind().await;
    let other = Life::begin(&site, "other").await;
    go.stop().await;
    assert!(is_marked(&site.api.get(&life.claim()).await.unwrap()), "Go removed the mark");
    provisioner.start_again();
    site.api.wait(&life.claim(), |claim| !is_marked(claim)).await;
    for life in [life, other] {
        life.end().await;
    }
    provisioner.stop().await;
    site.ledger.assert_clean();
}

/// The content of a snapshot, once there is one that is as wanted.
async fn content(site: &Site, wanted: impl Fn(&Value) -> bool) -> Value {
    let of = |it: &Value| it["spec"]["driver"] == *site.name && wanted(it);
    let find = |all: &Value| all["items"].as_array().unwrap().iter().find(|it| of(it)).cloned();
    let all = site.api.wait(CONTENTS, |all| find(all).is_some()).await;
    find(&all).unwrap()
}

fn is_being_created(content: &Value) -> bool {
    !content["metadata"]["annotations"][SNAPSHOT_BEING_CREATED].is_null()
}

#[tokio::test]
async fn a_snapshot_is_finished_whenever_its_snapshotter_is_killed() {
    const RPC: &str = "CreateSnapshot";
    let Some(site) = Site::with_snapshots("kill-snapshot").await else { return };
    let beside = [Kind::Provisioner, Kind::SnapshotController];
    let _beside = beside.map(|kind| site.start(kind, Make::Ours).unwrap());
    let (mut snapshotter, relay) = relayed(&site, Kind::Snapshotter).await;
    let life = Life::begin(&site, "data").await;
    // Events of a process that is killed may be lost: they are counted first.
    for has_answer in [true, false] {
        site.ledger.take_down(RPC);
        let snapshot = life.ask_for_snapshot().await;
        content(&site, is_being_created).await;
        if has_answer {
            // Between the content's status and the removal of the mark.
            site.ledger.hold(RPC);
            site.ledger.bring_back(RPC);
            site.ledger.held().await;
            is_quiet(&site, RPC, "default").await;
            relay.cut_back();
            site.ledger.release();
            let made = content(&site, |it| it["status"]["snapshotHandle"].is_string()).await;
            assert!(is_being_created(&made), "{made:#}");
        }
        // Between the mark on the content and CreateSnapshot.
        snapshotter.kill().await;
        relay.mend();
        site.ledger.bring_back(RPC);
        snapshotter.start_again();
        content(&site, |it| !is_being_created(it)).await;
        site.api.wait(&snapshot, |it| it["status"]["readyToUse"] == true).await;
        site.ledger.assert_single();
        life.delete_snapshot().await;
    }
    life.end().await;
    snapshotter.stop().await;
    site.ledger.assert_clean();
}

/// The other pairs of calls and writes of an attachment are those of `kills`.
#[tokio::test]
async fn a_volume_is_attached_once_whenever_its_attacher_is_killed() {
    let rpc = Kind::Attacher.rpc();
    let Some(site) = Site::new("kill-attached").await else { return };
    let _provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    let (mut attacher, relay) = relayed(&site, Kind::Attacher).await;
    let life = Life::begin(&site, "data").await;
    for has_answer in [false, true] {
        site.ledger.take_down(rpc);
        life.ask_to_attach().await;
        let attachment = life.paths().await[2].clone();
        let has_failed = |it: &Value| {
            let noted = &it["metadata"]["annotations"]["csi.wharf.dev/volume-handle"];
            noted.is_string() && it["status"]["attachError"].is_object()
        };
        site.api.wait(&attachment, has_failed).await;
        if has_answer {
            // The status is written, and its writer does not know.
            site.ledger.hold(rpc);
            site.ledger.bring_back(rpc);
            site.ledger.held().await;
            relay.cut_back();
            site.ledger.release();
            life.attached().await;
        }
        // Between the note on the VolumeAttachment and the call.
        attacher.kill().await;
        relay.mend();
        site.ledger.bring_back(rpc);
        let calls = site.ledger.calls(rpc);
        attacher.start_again();
        life.attached().await;
        life.detach().await;
        assert_eq!(site.ledger.calls(rpc) - calls, usize::from(!has_answer));
    }
    life.end().await;
    attacher.stop().await;
    site.ledger.assert_clean();
}
