//! A leader that is frozen for longer than its Lease, as by SIGSTOP or on a paused machine.

use std::net::Ipv4Addr;

use wharf_testkit::relay::Relay;

use crate::{
    audit,
    ledger::Door,
    life::Life,
    program::{Kind, Make, Program},
    sidecar::{Order, Sidecar},
    site::Site,
};

const KIND: Kind = Kind::Attacher;
const ROUNDS: usize = 4;
/// Enough for the calls and the end of the term to come together.
const CROWD: usize = 20;

/// A replica on a host of this name, with its own socket of the driver, and its own address for the
/// API server.
struct Replica {
    host: &'static str,
    address: Ipv4Addr,
    sidecar: Sidecar,
    door: Door,
    _relay: Relay,
}

impl Replica {
    async fn start(site: &Site, host: &'static str, address: Ipv4Addr) -> Self {
        let (door, socket) = site.open(&format!("{host}.sock"));
        let relay = Relay::open(site.cluster.server(), address).await.unwrap();
        let order = site.order(Program::One(KIND, Make::Ours), Some(host));
        let order = Order { socket, server: Some(relay.address()), ..order };
        Self { host, address, sidecar: order.start().unwrap(), door, _relay: relay }
    }

    /// How often it has called the driver, and how often it has written objects.
    fn deeds(&self, site: &Site) -> (usize, usize) {
        (self.door.calls(), audit::writes(site, self.address).len())
    }

    async fn leads(&self, site: &Site) {
        site.term(&KIND.lease(&site.name), |holder| holder == self.host).await;
    }
}

/// A leader that runs again handles the events of its watches while its election notices that the
/// Lease expired. A VolumeAttachment that the next leader is attaching looks unattached to it.
#[tokio::test]
async fn a_leader_that_was_frozen_does_not_call_the_driver_nor_write() {
    let Some(site) = Site::new("frozen-leader").await else { return };
    let _provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    let [here, there] = [5, 6].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let mut leader = Replica::start(&site, "one", here).await;
    leader.leads(&site).await;
    let mut lives = vec![Life::up_to(&site, KIND, "before").await];
    let mut other = Replica::start(&site, "two", there).await;
    for round in 0..ROUNDS {
        let mut waiting = Vec::new();
        for number in 0..CROWD {
            waiting.push(Life::begin(&site, &format!("during-{round}-{number}")).await);
        }
        leader.sidecar.freeze();
        other.leads(&site).await;
        // What was sent before has been answered by now.
        let deeds = leader.deeds(&site);
        assert!(deeds.0 > 0 && deeds.1 > 0, "{} did not lead", leader.host);
        other.door.hold(KIND.rpc());
        for life in &waiting {
            life.ask_to_attach().await;
        }
        site.ledger.held().await;
        leader.sidecar.thaw();
        leader.sidecar.said("stopped leading", 1).await;
        assert_eq!(leader.deeds(&site), deeds, "{} called the driver or wrote", leader.host);
        site.ledger.release();
        for life in &waiting {
            life.attached().await;
        }
        lives.append(&mut waiting);
        (leader, other) = (other, leader);
    }
    for life in lives {
        life.end_from(KIND).await;
    }
    site.ledger.assert_clean();
}
