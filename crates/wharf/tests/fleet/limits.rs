//! `--kube-api-qps` limits a process, however many controllers it has.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use wharf_testkit::relay::Relay;

use crate::{
    audit,
    life::Life,
    program::{Kind, Make, Program},
    sidecar::Order,
    site::Site,
};

const QPS: f64 = 10.0;
const BURST: f64 = 10.0;
/// Volumes to make: one write each.
const CLAIMS: usize = 36;
/// Volumes to attach: three writes each.
const ATTACHMENTS: usize = 12;
/// The address that the API server sees.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

#[tokio::test]
async fn controllers_of_a_process_share_one_limit() {
    let Some(site) = Site::with_snapshots("shared-limit").await else { return };
    let mut provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    let mut attached = Vec::new();
    for number in 0..ATTACHMENTS {
        attached.push(Life::begin(&site, &format!("attached-{number}")).await);
    }
    provisioner.stop().await;
    // Two controllers have work from the start.
    let mut claimed = Vec::new();
    for number in 0..CLAIMS {
        claimed.push(Life::ask(&site, &format!("claimed-{number}")).await);
    }
    for life in &attached {
        life.ask_to_attach().await;
    }
    let relay = Relay::open(site.cluster.server(), SOURCE).await.unwrap();
    let more: &[&str] = &["--kube-api-qps=10", "--kube-api-burst=10"];
    let order =
        Order { more, server: Some(relay.address()), ..site.order(Program::Combined, None) };
    let mut combined = order.start().unwrap();
    for life in &attached {
        life.attached().await;
    }
    for life in &claimed {
        life.bind().await;
    }
    let at = |write: &serde_json::Value| -> Timestamp {
        write["requestReceivedTimestamp"].as_str().unwrap().parse().unwrap()
    };
    let mut times: Vec<Timestamp> = audit::writes(&site, SOURCE).iter().map(at).collect();
    times.sort();
    let (first, last) = (*times.first().unwrap(), *times.last().unwrap());
    assert!(times.len() >= CLAIMS + ATTACHMENTS * 2, "{} writes", times.len());
    let took = last.duration_since(first).as_secs_f64();
    // Two limits would let half of this pass in each.
    let least = (times.len() as f64 - BURST) / QPS;
    assert!(took >= least * 0.9, "{} writes took {took} s, and {least} s at least", times.len());
    combined.stop().await;
}
