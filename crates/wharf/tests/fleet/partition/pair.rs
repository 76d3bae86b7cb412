//! Two replicas, of which the first leads until it is cut off.

use std::{collections::BTreeMap, net::Ipv4Addr};

use jiff::Timestamp;
use serde_json::Value;
use wharf_testkit::relay::Relay;

use crate::{
    audit,
    ledger::Door,
    life::Life,
    program::{Kind, Make, Program},
    sidecar::{Order, Sidecar},
    site::{Site, Term},
};

pub(super) struct Pair<'a> {
    site: &'a Site,
    pub(super) first: Replica,
    second: Replica,
    /// The terms of the first.
    led: Vec<Term>,
}

/// One of the two: its host, the address that the API server sees, and its ways to the API server
/// and to the driver.
pub(super) struct Replica {
    host: &'static str,
    address: Ipv4Addr,
    program: Program,
    pub(super) relay: Relay,
    pub(super) door: Door,
    sidecar: Sidecar,
}

impl<'a> Pair<'a> {
    /// `None` where there is no such program.
    pub(super) async fn start(site: &'a Site, [leader, other]: [Program; 2]) -> Option<Self> {
        let [here, there] = [2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let first = Replica::start(site, "first", here, leader).await?;
        let led = first.terms(site, &[]).await;
        let second = Replica::start(site, "second", there, other).await?;
        Some(Self { site, first, second, led })
    }

    /// Waits until the second leads in place of the first.
    pub(super) async fn taken_over(&self) -> Vec<Term> {
        self.second.terms(self.site, &self.led).await
    }

    /// Goes on when the second leads, for these terms, and the first is cut off: alone, then with
    /// the first back again, which does nothing until the second has ended and it leads again.
    pub(super) async fn go_on(&mut self, kind: Kind, terms: &[Term]) -> [Life<'a>; 3] {
        let (site, first, second) = (self.site, &mut self.first, &mut self.second);
        let apart = Life::up_to(site, kind, "apart").await;
        site.ledger.release();
        first.relay.mend();
        let mended = Life::up_to(site, kind, "mended").await;

        let since = terms.iter().map(|term| term.since).min().unwrap();
        let calls = site.ledger.journal();
        let late = calls.iter().find(|call| call.door == first.host && call.at > since);
        assert!(late.is_none(), "{late:?} was made when another had the Lease, since {since}");
        // What the first had sent when it was cut off may have arrived meanwhile, and did no harm
        // then.
        for life in [&apart, &mended] {
            assert!(second.wrote(site, life).await, "not written by the one that led");
            assert!(!first.wrote(site, life).await, "written by the one that did not lead");
        }

        if first.program.make() == Make::Go {
            first.sidecar.ended().await;
            first.sidecar.start_again();
        }
        second.sidecar.stop().await;
        let led = first.terms(site, terms).await;
        let again = Life::up_to(site, kind, "again").await;
        if first.program.make() == Make::Ours {
            // What it knew is not what is, after another has led.
            let since = led.iter().map(|term| term.since).min().unwrap();
            let listed = audit::listed(site, first.address, since);
            let wanted = match kind {
                Kind::Snapshotter => "volumesnapshotcontents",
                _ => "persistentvolumes",
            };
            assert!(listed.contains_key(wanted), "only {listed:?} were listed anew");
        }
        assert!(first.wrote(site, &again).await, "not written by the one that leads again");
        [apart, mended, again]
    }

    /// In which order the two called the driver.
    pub(super) fn turns(&self) -> Vec<String> {
        let calls = self.site.ledger.journal();
        let mut doors: Vec<_> = calls.into_iter().map(|call| call.door).collect();
        doors.retain(|door| [self.first.host, self.second.host].contains(&door.as_str()));
        doors.dedup();
        doors
    }
}

impl Replica {
    /// Waits until it knows that it no longer leads, which it says for each Lease.
    pub(super) async fn stopped_leading(&mut self, site: &Site) {
        let leases = self.program.leases(&site.name).len();
        self.sidecar.said("stopped leading", leases).await;
    }

    /// The kinds that it asked for whole, from a time on, and how often.
    pub(super) fn listed(&self, site: &Site, since: Timestamp) -> BTreeMap<String, usize> {
        audit::listed(site, self.address, since)
    }

    pub(super) async fn start(
        site: &Site,
        host: &'static str,
        address: Ipv4Addr,
        program: Program,
    ) -> Option<Self> {
        let relay = Relay::open(site.cluster.server(), address).await.unwrap();
        let (door, socket) = site.open(&format!("{host}.sock"));
        let server = Some(relay.address());
        let order = Order { socket, server, ..site.order(program, Some(host)) };
        Some(Self { host, address, program, relay, door, sidecar: order.start()? })
    }

    /// Waits until all of its Leases are held by others than those who held them `before`.
    pub(super) async fn terms(&self, site: &Site, before: &[Term]) -> Vec<Term> {
        let mut terms = Vec::new();
        for lease in self.program.leases(&site.name) {
            let is_new = |holder: &str| before.iter().all(|term| term.holder != holder);
            terms.push(site.term(&lease, is_new).await);
        }
        terms
    }

    /// Whether it wrote any object of a life.
    async fn wrote(&self, site: &Site, life: &Life<'_>) -> bool {
        let paths = life.paths().await;
        let is_own = |written: &Value| {
            let name = written["name"].as_str();
            let is_here = written["namespace"].as_str().is_none_or(|it| it == site.name);
            is_here && paths.iter().any(|path| path.rsplit('/').next() == name)
        };
        audit::writes(site, self.address).iter().any(|write| is_own(&write["objectRef"]))
    }
}
