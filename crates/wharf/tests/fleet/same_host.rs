//! Two replicas on one host name, as with `hostNetwork` or during a rolling update on one node.

use serde_json::Value;

use crate::{
    ledger::Door,
    life::Life,
    program::{Kind, Make, Program},
    sidecar::{Order, Sidecar},
    site::Site,
};

const KIND: Kind = Kind::Provisioner;
const HOST: &str = "same";
const CLAIMS: usize = 5;

/// Starts a replica with a socket of the driver and a folder of its own.
fn start(site: &Site, name: &str) -> (Door, Sidecar) {
    let (door, socket) = site.open(&format!("{name}.sock"));
    let order = site.order(Program::One(KIND, Make::Ours), Some(HOST));
    let folder = order.folder.join(name);
    std::fs::create_dir(&folder).unwrap();
    let order = Order { socket, folder: &folder, more: &["-v=2"], ..order };
    (door, order.start().unwrap())
}

async fn lease(site: &Site) -> Value {
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    site.api.get(&format!("{path}/{}", KIND.lease(&site.name))).await.unwrap()["spec"].take()
}

#[tokio::test]
async fn of_two_replicas_on_one_host_name_one_leads() {
    let Some(site) = Site::new("same-host").await else { return };
    let (first_door, mut first) = start(&site, "first");
    first.said("became leader", 1).await;
    let (second_door, mut second) = start(&site, "second");
    second.said("new leader detected", 1).await;
    let mut lives = Vec::new();
    for number in 0..CLAIMS {
        lives.push(Life::begin(&site, &format!("data-{number}")).await);
    }
    assert_eq!((first_door.calls(), second_door.calls()), (CLAIMS, 0));

    first.kill().await;
    second.said("became leader", 1).await;
    lives.push(Life::begin(&site, "after").await);
    first.start_again();
    first.said("new leader detected", 1).await;
    assert_eq!(first_door.calls(), CLAIMS, "the killed replica leads again beside the other");
    for life in lives {
        life.end().await;
    }
    second.stop().await;
    first.stop().await;
    site.ledger.assert_clean();
}

/// A container that is restarted in its pod works again at once.
#[tokio::test]
async fn a_leader_that_is_killed_and_restarted_has_its_lease_back_without_a_wait() {
    let Some(site) = Site::new("same-again").await else { return };
    let (_door, mut first) = start(&site, "first");
    first.said("became leader", 1).await;
    let before = lease(&site).await;
    first.kill().await;
    first.start_again();
    first.said("became leader", 2).await;
    let after = lease(&site).await;
    // A Lease that was waited for gets another time, and one transition more.
    for field in ["holderIdentity", "acquireTime", "leaseTransitions"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    assert!(before["holderIdentity"].as_str().unwrap().starts_with(HOST), "{before}");
    first.stop().await;
}
