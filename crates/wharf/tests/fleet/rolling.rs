//! A change from Go's sidecars to ours and back, one after the other, while work continues.

use std::cell::Cell;

use crate::{
    life::Life,
    program::{Kind, Make},
    sidecar::Sidecar,
    site::Site,
};

/// Those that both makes have.
const CHANGED: [Kind; 4] =
    [Kind::Provisioner, Kind::Resizer, Kind::Snapshotter, Kind::SnapshotController];

/// Lives one after the other, so that one is under way at each exchange. The last begins after all
/// of them.
async fn lane(site: &Site, name: &str, exchanged: &Cell<bool>) {
    for number in 0.. {
        let last = exchanged.get();
        Life::whole(site, &format!("{name}-{number}")).await;
        if last {
            break;
        }
    }
}

fn start(site: &Site, make: Make) -> Option<Vec<Sidecar>> {
    CHANGED.into_iter().map(|kind| site.start_elected(kind, make)).collect()
}

/// One after the other, the next replica is there before the last one ends, as in a rolling update.
async fn roll(site: &Site, fleet: &mut [Sidecar], make: Make) {
    for (kind, sidecar) in CHANGED.into_iter().zip(fleet) {
        let next = site.start_elected(kind, make).unwrap();
        sidecar.stop().await;
        *sidecar = next;
        site.leads(kind, make).await;
    }
}

/// All leaders are gone at once, as with their node, and replicas elsewhere take over.
async fn lose(site: &Site, fleet: &mut Vec<Sidecar>, make: Make) {
    let next = start(site, make).unwrap();
    for sidecar in &mut *fleet {
        sidecar.kill().await;
    }
    *fleet = next;
    for kind in CHANGED {
        site.leads(kind, make).await;
    }
}

#[tokio::test]
async fn work_goes_on_while_sidecars_are_exchanged() {
    let Some(site) = Site::with_snapshots("rolling").await else { return };
    let _attacher = site.start(Kind::Attacher, Make::Ours).unwrap();
    let Some(mut fleet) = start(&site, Make::Go) else { return };
    let exchanged = Cell::new(false);
    let exchange = async {
        for make in [Make::Ours, Make::Go] {
            roll(&site, &mut fleet, make).await;
        }
        for make in [Make::Ours, Make::Go] {
            lose(&site, &mut fleet, make).await;
        }
        exchanged.set(true);
    };
    let lane = |name| lane(&site, name, &exchanged);
    tokio::join!(lane("a"), lane("b"), lane("c"), exchange);
    site.ledger.assert_clean();
}
