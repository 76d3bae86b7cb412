//! Two replicas of one controller, ours and Go's, that share a Lease.

use crate::{
    ledger::Door,
    life::Life,
    program::{Kind, Make, Program},
    sidecar::{Order, Sidecar},
    site::Site,
};

/// How a leader ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    Stopped,
}

/// One of the two, and the socket at which it calls the driver.
struct Replica {
    kind: Kind,
    make: Make,
    sidecar: Sidecar,
    door: Door,
}

impl Replica {
    fn start(site: &Site, kind: Kind, make: Make) -> Option<Self> {
        let (door, socket) = site.open(&format!("{make:?}.sock"));
        let order = site.order(Program::One(kind, make), Some(Site::host(make)));
        Some(Self { kind, make, sidecar: Order { socket, ..order }.start()?, door })
    }

    async fn leads(&self, site: &Site) {
        site.leads(self.kind, self.make).await;
    }
}

/// Lives up to the step that the controller has a part in.
async fn work<'a>(site: &'a Site, kind: Kind, name: &str) -> [Life<'a>; 3] {
    let live = async |number| Life::up_to(site, kind, &format!("{name}-{number}")).await;
    tokio::join!(live(0), live(1), live(2)).into()
}

/// The leader works and the other does not; the leader ends in the middle of calls, and the other
/// takes over.
async fn change<'a>(
    site: &'a Site,
    leader: &mut Replica,
    other: &Replica,
    end: End,
) -> [[Life<'a>; 3]; 2] {
    let (kind, ledger) = (leader.kind, &site.ledger);
    let name = format!("{:?}-{end:?}", leader.make).to_lowercase();
    let (before, rested) = (leader.door.calls(), other.door.calls());
    let quiet = work(site, kind, &format!("{name}-before")).await;
    let calls = leader.door.calls() - before;
    match (kind, leader.make) {
        (Kind::SnapshotController, _) => assert_eq!(calls, 0),
        (_, Make::Ours) => assert_eq!(calls, quiet.len(), "expected a call per life of {name}"),
        // It asks again after a conflict of writes.
        (_, Make::Go) => assert!(calls >= quiet.len(), "{calls} calls for {name}"),
    }
    assert_eq!(other.door.calls(), rested, "{:?} called the driver and did not lead", other.make);

    ledger.hold(kind.rpc());
    let ended = async {
        ledger.held().await;
        match end {
            End::Killed => {
                leader.sidecar.kill().await;
                ledger.release();
            }
            // The signal is sent before it is waited for, so it is there before the answers are.
            End::Stopped => {
                tokio::join!(leader.sidecar.stop(), async { ledger.release() });
            }
        }
        other.leads(site).await;
    };
    let name = format!("{name}-during");
    let (during, ()) = tokio::join!(work(site, kind, &name), ended);
    ledger.assert_single();
    leader.sidecar.start_again();
    [quiet, during]
}

/// Both ends of both makes. The sidecars `beside` are ours.
async fn take_turns(site: &Site, kind: Kind, beside: &[Kind]) {
    let _beside: Vec<_> =
        beside.iter().map(|kind| site.start(*kind, Make::Ours).unwrap()).collect();
    let Some(mut go) = Replica::start(site, kind, Make::Go) else { return };
    go.leads(site).await;
    let Some(mut ours) = Replica::start(site, kind, Make::Ours) else { return };
    let lives = [
        change(site, &mut go, &ours, End::Killed).await,
        change(site, &mut ours, &go, End::Stopped).await,
        change(site, &mut go, &ours, End::Stopped).await,
        change(site, &mut ours, &go, End::Killed).await,
    ];
    let lives: Vec<Life<'_>> = lives.into_iter().flatten().flatten().collect();
    assert_eq!(site.ledger.volumes(), lives.len());
    for life in lives {
        life.end_from(kind).await;
    }
    site.ledger.assert_clean();
}

#[tokio::test]
async fn provisioners_of_both_makes_take_turns() {
    let Some(site) = Site::new("turns-provisioner").await else { return };
    take_turns(&site, Kind::Provisioner, &[]).await;
}

#[tokio::test]
async fn attachers_of_both_makes_take_turns() {
    let Some(site) = Site::new("turns-attacher").await else { return };
    take_turns(&site, Kind::Attacher, &[Kind::Provisioner]).await;
}

#[tokio::test]
async fn resizers_of_both_makes_take_turns() {
    let Some(site) = Site::new("turns-resizer").await else { return };
    take_turns(&site, Kind::Resizer, &[Kind::Provisioner]).await;
}

#[tokio::test]
async fn snapshotters_of_both_makes_take_turns() {
    let Some(site) = Site::with_snapshots("turns-snapshotter").await else { return };
    take_turns(&site, Kind::Snapshotter, &[Kind::Provisioner, Kind::SnapshotController]).await;
}

#[tokio::test]
async fn snapshot_controllers_of_both_makes_take_turns() {
    let Some(site) = Site::with_snapshots("turns-snapshot-controller").await else { return };
    take_turns(&site, Kind::SnapshotController, &[Kind::Provisioner, Kind::Snapshotter]).await;
}
