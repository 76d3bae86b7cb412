//! The default of `--controllers`: the controllers of one driver, in each of its namespaces.

use std::net::Ipv4Addr;

use serde_json::Value;
use wharf_testkit::relay::Relay;

use crate::{
    audit,
    life::Life,
    program::{Kind, Make, Program},
    sidecar::{Order, Sidecar},
    site::Site,
};

async fn start(site: &Site, address: Ipv4Addr) -> (Sidecar, Relay) {
    let relay = Relay::open(site.cluster.server(), address).await.unwrap();
    let order = Order { server: Some(relay.address()), ..site.order(Program::OfDriver, None) };
    (order.start().unwrap(), relay)
}

/// What was written from an address to objects of this resource, or to all but those.
fn writes(site: &Site, address: Ipv4Addr, resource: &str, is: bool) -> Vec<Value> {
    let mut writes = audit::writes(site, address);
    writes.retain(|write| (write["objectRef"]["resource"] == resource) == is);
    writes
}

/// A cluster has one snapshot-controller, and sidecars of two drivers are two processes that know
/// nothing of each other.
#[tokio::test]
async fn sidecars_of_two_drivers_leave_snapshots_to_the_one_snapshot_controller() {
    let Some(one) = Site::with_snapshots("defaults-one").await else { return };
    let two = Site::new("defaults-two").await.unwrap();
    let addresses = [7, 8].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let (mut first, _first_way) = start(&one, addresses[0]).await;
    let (mut second, _second_way) = start(&two, addresses[1]).await;
    let (here, there) = (Life::begin(&one, "here").await, Life::begin(&two, "there").await);
    let snapshot = here.ask_for_snapshot().await;
    there.ask_for_snapshot().await;
    let mut controller = one.start(Kind::SnapshotController, Make::Ours).unwrap();
    one.api.wait(&snapshot, |it| it["status"]["readyToUse"] == true).await;
    for life in [here, there] {
        life.end_from(Kind::SnapshotController).await;
    }
    for address in addresses {
        let written = writes(&one, address, "volumesnapshots", true);
        assert!(written.is_empty(), "{written:#?}");
        assert!(!writes(&one, address, "volumesnapshots", false).is_empty(), "it did nothing");
    }
    for sidecar in [&mut first, &mut second, &mut controller] {
        sidecar.stop().await;
    }
    one.ledger.assert_clean();
    two.ledger.assert_clean();
}
