//! A cut between the API server and the leader: at any time one of two replicas works, and the work
//! of both is done once.

mod pair;

use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    life::Life,
    program::{Kind, Make, Program},
    site::Site,
};

use self::pair::{Pair, Replica};

/// How a leader is cut off.
#[derive(Clone, Copy)]
enum Cut {
    /// The driver answers it when another leads.
    Late,
    /// The driver answers it when it leads, as far as it knows, and cannot tell anyone.
    Mute,
    /// The same, and all that it says is heard, but it hears nothing.
    Deaf,
}

/// Cuts the leader off while the driver works for it.
async fn cut_off(site: &Site, kind: Kind, programs: [Program; 2], cut: Cut) {
    let Some(mut pair) = Pair::start(site, programs).await else { return };
    pair.first.door.hold(kind.rpc());
    let cut = async {
        site.ledger.held().await;
        let cut = async {
            site.ledger.refused().await;
            match cut {
                Cut::Late | Cut::Mute => pair.first.relay.cut(),
                Cut::Deaf => pair.first.relay.cut_back(),
            }
            if !matches!(cut, Cut::Late) {
                site.ledger.release();
            }
            pair.taken_over().await
        };
        // One that is refused is asked for again and again, for as long as it may be.
        tokio::join!(Life::up_to(site, kind, "refused"), cut)
    };
    let (held, (refused, terms)) = tokio::join!(Life::up_to(site, kind, "held"), cut);
    let [apart, mended, again] = pair.go_on(kind, &terms).await;
    assert_eq!(pair.turns(), ["first", "second", "first"]);
    end(site, kind, vec![held, refused, apart, mended, again]).await;
}

/// Ends lives, of each of which there was one volume, and sees to it that nothing is left.
async fn end(site: &Site, kind: Kind, lives: Vec<Life<'_>>) {
    assert_eq!(site.ledger.volumes(), lives.len());
    assert_eq!(volumes(site).await, lives.len());
    for life in lives {
        life.end_from(kind).await;
    }
    site.ledger.assert_clean();
}

/// How many PersistentVolumes there are for the claims of a test.
async fn volumes(site: &Site) -> usize {
    let list = site.api.get("/api/v1/persistentvolumes").await.unwrap();
    let own = |it: &&Value| it["spec"]["claimRef"]["namespace"] == *site.name;
    list["items"].as_array().unwrap().iter().filter(own).count()
}

#[tokio::test]
async fn a_provisioner_that_is_cut_off_stops() {
    let Some(site) = Site::new("cut-provisioner").await else { return };
    cut_off(&site, Kind::Provisioner, [Program::One(Kind::Provisioner, Make::Ours); 2], Cut::Late)
        .await;
}

#[tokio::test]
async fn volumes_that_a_provisioner_cannot_tell_of_are_not_made_twice() {
    let Some(site) = Site::new("cut-silent").await else { return };
    let programs = [Program::One(Kind::Provisioner, Make::Ours); 2];
    cut_off(&site, Kind::Provisioner, programs, Cut::Mute).await;
}

#[tokio::test]
async fn volumes_that_a_provisioner_is_not_thanked_for_are_not_made_twice() {
    let Some(site) = Site::new("cut-deaf").await else { return };
    let programs = [Program::One(Kind::Provisioner, Make::Ours); 2];
    cut_off(&site, Kind::Provisioner, programs, Cut::Deaf).await;
}

#[tokio::test]
async fn our_provisioner_takes_over_from_one_of_go_that_is_cut_off() {
    let Some(site) = Site::new("cut-go-provisioner").await else { return };
    let programs = [Make::Go, Make::Ours].map(|make| Program::One(Kind::Provisioner, make));
    cut_off(&site, Kind::Provisioner, programs, Cut::Late).await;
}

#[tokio::test]
async fn a_provisioner_of_go_takes_over_from_ours_that_is_cut_off() {
    let Some(site) = Site::new("cut-provisioner-for-go").await else { return };
    let programs = [Make::Ours, Make::Go].map(|make| Program::One(Kind::Provisioner, make));
    cut_off(&site, Kind::Provisioner, programs, Cut::Late).await;
}

#[tokio::test]
async fn an_attacher_that_is_cut_off_stops() {
    let Some(site) = Site::new("cut-attacher").await else { return };
    let _provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    cut_off(&site, Kind::Attacher, [Program::One(Kind::Attacher, Make::Ours); 2], Cut::Late).await;
}

#[tokio::test]
async fn an_attacher_that_hears_no_answers_stops() {
    let Some(site) = Site::new("cut-deaf-attacher").await else { return };
    let _provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    cut_off(&site, Kind::Attacher, [Program::One(Kind::Attacher, Make::Ours); 2], Cut::Deaf).await;
}

#[tokio::test]
async fn a_resizer_that_is_cut_off_stops() {
    let Some(site) = Site::new("cut-resizer").await else { return };
    let _provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    cut_off(&site, Kind::Resizer, [Program::One(Kind::Resizer, Make::Ours); 2], Cut::Late).await;
}

#[tokio::test]
async fn a_snapshotter_that_is_cut_off_stops() {
    let Some(site) = Site::with_snapshots("cut-snapshotter").await else { return };
    let beside = [Kind::Provisioner, Kind::SnapshotController];
    let _beside = beside.map(|kind| site.start(kind, Make::Ours).unwrap());
    cut_off(&site, Kind::Snapshotter, [Program::One(Kind::Snapshotter, Make::Ours); 2], Cut::Late)
        .await;
}

#[tokio::test]
async fn a_snapshot_controller_that_is_cut_off_stops() {
    let Some(site) = Site::with_snapshots("cut-snapshot-controller").await else { return };
    let beside = [Kind::Provisioner, Kind::Snapshotter];
    let _beside = beside.map(|kind| site.start(kind, Make::Ours).unwrap());
    let kind = Kind::SnapshotController;
    let mut pair = Pair::start(&site, [Program::One(kind, Make::Ours); 2]).await.unwrap();
    // It has no driver, and waits for what the snapshotter has in hand.
    site.ledger.hold(kind.rpc());
    let cut = async {
        site.ledger.held().await;
        pair.first.relay.cut();
        site.ledger.release();
        pair.taken_over().await
    };
    let (held, terms) = tokio::join!(Life::up_to(&site, kind, "held"), cut);
    let [apart, mended, again] = pair.go_on(kind, &terms).await;
    end(&site, kind, vec![held, apart, mended, again]).await;
}

#[tokio::test]
async fn a_process_of_all_controllers_that_is_cut_off_stops() {
    let Some(site) = Site::with_snapshots("cut-joint").await else { return };
    cut_off(&site, Kind::Attacher, [Program::Combined; 2], Cut::Late).await;
}

#[tokio::test]
async fn a_process_that_was_cut_off_alone_lists_each_kind_once_at_the_most() {
    let Some(site) = Site::with_snapshots("cut-alone").await else { return };
    let address = Ipv4Addr::new(127, 0, 0, 4);
    let mut alone = Replica::start(&site, "alone", address, Program::Combined).await.unwrap();
    alone.terms(&site, &[]).await;
    let before = Life::up_to(&site, Kind::Snapshotter, "before").await;
    let since = Timestamp::now();
    alone.relay.cut();
    alone.stopped_leading(&site).await;
    alone.relay.mend();
    for lease in Program::Combined.leases(&site.name) {
        assert_eq!(site.renewed(&lease).await, "alone");
    }
    let after = Life::up_to(&site, Kind::Snapshotter, "after").await;
    let listed = alone.listed(&site, since);
    assert!(listed.values().all(|times| *times == 1), "{listed:?}");
    for life in [before, after] {
        life.end_from(Kind::Snapshotter).await;
    }
    site.ledger.assert_clean();
}

#[tokio::test]
async fn a_volume_that_moves_when_its_attacher_is_cut_off_is_on_one_node() {
    let Some(site) = Site::new("cut-moved").await else { return };
    site.add_node("cut-moved-2").await;
    let _provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    let attacher = Program::One(Kind::Attacher, Make::Ours);
    let pair = Pair::start(&site, [attacher; 2]).await.unwrap();
    let here = Life::begin(&site, "data").await;
    pair.first.door.hold(Kind::Attacher.rpc());
    here.ask_to_attach().await;
    site.ledger.held().await;
    pair.first.relay.cut();
    site.ledger.release();
    tokio::join!(here.detach(), pair.taken_over());
    let there = here.moved_to("cut-moved-2");
    there.attach().await;
    pair.first.relay.mend();
    Life::up_to(&site, Kind::Attacher, "next").await.end_from(Kind::Attacher).await;

    let journal = site.ledger.journal();
    let called: Vec<_> = journal
        .iter()
        .filter(|call| call.what.starts_with("ledger-0001 "))
        .map(|call| format!("{} {} {}", call.door, call.rpc, call.what))
        .collect();
    assert_eq!(
        called,
        [
            "first ControllerPublishVolume ledger-0001 cut-moved-id",
            "second ControllerUnpublishVolume ledger-0001 cut-moved-id",
            "second ControllerPublishVolume ledger-0001 cut-moved-2-id",
        ]
    );
    there.end_from(Kind::Attacher).await;
    site.ledger.assert_clean();
}
