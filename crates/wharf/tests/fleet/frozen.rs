//! A leader that is frozen for longer than its Lease lasts, as by SIGSTOP or on a paused machine.

use crate::ledger::Door;
use crate::life::Life;
use crate::program::{Kind, Make, Program};
use crate::sidecar::{Order, Sidecar};
use crate::site::Site;

const KIND: Kind = Kind::Attacher;
const ROUNDS: usize = 2;
/// Enough for the calls and the end of the term to come together.
const CROWD: usize = 20;

/// A replica on a host of this name, with its own socket of the driver.
struct Replica {
    host: &'static str,
    sidecar: Sidecar,
    door: Door,
}

impl Replica {
    fn start(site: &Site, host: &'static str) -> Self {
        let (door, socket) = site.open(&format!("{host}.sock"));
        let order = site.order(Program::One(KIND, Make::Ours), Some(host));
        Self { host, sidecar: Order { socket, ..order }.start().unwrap(), door }
    }

    async fn leads(&self, site: &Site) {
        site.term(&KIND.lease(&site.name), |holder| holder == self.host).await;
    }
}

/// A leader that runs again handles the events of its watches while its election notices that the Lease expired. A
/// VolumeAttachment that the next leader is attaching looks unattached to it.
#[tokio::test]
async fn a_leader_that_was_frozen_does_not_call_the_driver() {
    let Some(site) = Site::new("frozen-leader").await else { return };
    let _provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    let mut leader = Replica::start(&site, "one");
    leader.leads(&site).await;
    let mut lives = vec![Life::up_to(&site, KIND, "before").await];
    let mut other = Replica::start(&site, "two");
    for round in 0..ROUNDS {
        let mut waiting = Vec::new();
        for number in 0..CROWD {
            waiting.push(Life::begin(&site, &format!("during-{round}-{number}")).await);
        }
        leader.sidecar.freeze();
        let calls = leader.door.calls();
        assert!(calls > 0, "{} did not lead", leader.host);
        other.leads(&site).await;
        other.door.hold(KIND.rpc());
        for life in &waiting {
            life.ask_to_attach().await;
        }
        site.ledger.held().await;
        leader.sidecar.thaw();
        leader.sidecar.said("stopped leading", 1).await;
        assert_eq!(leader.door.calls(), calls, "{} called the driver", leader.host);
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
