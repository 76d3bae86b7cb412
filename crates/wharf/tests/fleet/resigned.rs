//! A leader that resigns because its driver does not answer waits for the calls that the driver may
//! still work on.

use wharf_testkit::relay::SocketRelay;

use crate::{
    life::Life,
    program::{Kind, Make, Program},
    sidecar::{LEASE, Order},
    site::Site,
};

const KIND: Kind = Kind::Attacher;

#[tokio::test]
async fn a_leader_that_resigns_waits_for_calls_under_way_as_long_as_its_lease_would_last() {
    let Some(site) = Site::new("resigned").await else { return };
    let _provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    let life = Life::begin(&site, "data").await;
    let (door, behind) = site.open("first.sock");
    let socket = behind.with_file_name("front.sock");
    let relay = SocketRelay::open(&socket, &behind).unwrap();
    let program = Program::One(KIND, Make::Ours);
    let order = Order { more: &["--timeout=10m"], ..site.order(program, Some("first")) };
    let mut first = Order { socket, ..order }.start().unwrap();
    site.term(&KIND.lease(&site.name), |holder| holder == "first").await;
    door.hold(KIND.rpc());
    life.ask_to_attach().await;
    // The driver works on the call, and then hangs with it.
    site.ledger.held().await;
    relay.cut();
    first.said("released the Lease", 1).await;
    let hung = first.logged_at("CSI driver does not answer");
    let took = (first.logged_at("released the Lease") - hung).rem_euclid(86_400.0);
    // The last renewal was up to a retry period ago, and a tenth of the Lease is kept for what is
    // sent.
    assert!(took > LEASE * 0.9 - 1.5, "given back {took} s after the driver went silent");
    assert!(took < LEASE * 3.0, "after {took} s, in which nobody works");
    let told = first.lines(&["the CSI driver may work on a call"]);
    assert_eq!(told, 1, "{}", first.log());
    relay.mend();
    site.ledger.release();
    life.attached().await;
    life.detach().await;
    life.end().await;
    first.stop().await;
    site.ledger.assert_clean();
}
