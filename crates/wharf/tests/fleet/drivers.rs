//! Two replicas, each with its own driver: work follows the driver, also calls that the driver has
//! begun.

use wharf_testkit::relay::SocketRelay;

use crate::{
    ledger::Door,
    life::Life,
    program::{Kind, Make, Program},
    readiness::Shown,
    sidecar::{LEASE, Order, Sidecar},
    site::Site,
};

/// A replica with its own socket of the driver.
struct Replica {
    host: &'static str,
    door: Door,
    sidecar: Sidecar,
}

impl Replica {
    fn start(site: &Site, host: &'static str, program: Program, more: &[&str]) -> Self {
        let (door, socket) = site.open(&format!("{host}.sock"));
        let order = Order { socket, more, ..site.order(program, Some(host)) };
        Self { host, door, sidecar: order.start().unwrap() }
    }

    /// Waits until it holds this Lease.
    async fn leads(&self, site: &Site, lease: &str) {
        site.term(lease, |holder| holder == self.host).await;
    }
}

/// The leader's driver goes for good, and comes back when the other replica has ended.
async fn work_follows(site: &Site, program: Program, kinds: &[Kind]) {
    let leases: Vec<_> = kinds.iter().map(|kind| kind.lease(&site.name)).collect();
    let mut first = Replica::start(site, "first", program, &[]);
    for lease in &leases {
        first.leads(site, lease).await;
    }
    let mut second = Replica::start(site, "second", program, &[]);
    let before = Life::begin(site, "before").await;
    drop(first.door);
    let without = Life::begin(site, "without").await;
    for lease in &leases {
        second.leads(site, lease).await;
    }
    assert_eq!(second.door.calls(), 1, "the second replica was not asked");
    first.door = site.open("first.sock").0;
    second.sidecar.stop().await;
    for lease in &leases {
        first.leads(site, lease).await;
    }
    let again = Life::begin(site, "again").await;
    for life in [before, without, again] {
        life.end().await;
    }
    first.sidecar.stop().await;
    site.ledger.assert_clean();
}

#[tokio::test]
async fn a_leader_without_its_driver_lets_another_replica_work() {
    let Some(site) = Site::new("driverless").await else { return };
    work_follows(&site, Program::One(Kind::Provisioner, Make::Ours), &[Kind::Provisioner]).await;
}

#[tokio::test]
async fn a_leader_without_its_driver_gives_its_lease_back_after_a_lease_duration() {
    let Some(site) = Site::new("driverless-time").await else { return };
    let program = Program::One(Kind::Provisioner, Make::Ours);
    let mut first = Replica::start(&site, "first", program, &[]);
    first.leads(&site, &Kind::Provisioner.lease(&site.name)).await;
    drop(first.door);
    first.sidecar.said("released the Lease", 1).await;
    let lost = first.sidecar.logged_at("lost connection to CSI driver");
    let took = (first.sidecar.logged_at("released the Lease") - lost).rem_euclid(86_400.0);
    // The connection is lost before that is logged.
    assert!(took > LEASE - 0.5, "after {took} s: a driver that restarts would cost a failover");
    assert!(took < LEASE * 2.0, "after {took} s, in which nobody works");
    first.sidecar.stop().await;
}

/// The driver of the leader accepts connections and answers nothing, and later answers again.
#[tokio::test]
async fn a_leader_whose_driver_hangs_lets_another_replica_work() {
    let Some(site) = Site::new("hung-driver").await else { return };
    let program = Program::One(Kind::Provisioner, Make::Ours);
    let lease = Kind::Provisioner.lease(&site.name);
    let (door, behind) = site.open("first.sock");
    let socket = behind.with_file_name("front.sock");
    let relay = SocketRelay::open(&socket, &behind).unwrap();
    let shown = Shown::new();
    let more = ["--http-endpoint", shown.0.as_str()];
    let order = Order { socket, more: &more, ..site.order(program, Some("first")) };
    let mut first = Replica { host: "first", door, sidecar: order.start().unwrap() };
    first.leads(&site, &lease).await;
    let second = Replica::start(&site, "second", program, &[]);
    let before = Life::begin(&site, "before").await;

    relay.cut();
    // Nobody needs the driver: it is not asked, and keeps its leader.
    let (calls, holder) = (first.door.calls(), site.renewed(&lease).await);
    assert_eq!((calls, holder.as_str()), (1, "first"));
    let without = Life::begin(&site, "without").await;
    second.leads(&site, &lease).await;
    first.sidecar.said("CSI driver does not answer", 1).await;
    first.sidecar.said("released the Lease", 1).await;
    shown.reads("503", &["does not answer"]).await;

    relay.mend();
    shown.reads("200", &[]).await;
    let mut second = second;
    second.sidecar.stop().await;
    first.leads(&site, &lease).await;
    let again = Life::begin(&site, "again").await;
    for life in [before, without, again] {
        life.end().await;
    }
    first.sidecar.stop().await;
    site.ledger.assert_clean();
}

/// One call takes longer than a Lease lasts, and the driver answers its Probe meanwhile.
#[tokio::test]
async fn a_leader_whose_driver_is_slow_leads_on() {
    let Some(site) = Site::new("slow-driver").await else { return };
    let program = Program::One(Kind::Provisioner, Make::Ours);
    let lease = Kind::Provisioner.lease(&site.name);
    let mut first = Replica::start(&site, "first", program, &["--timeout=10m"]);
    first.leads(&site, &lease).await;
    let second = Replica::start(&site, "second", program, &[]);
    site.ledger.hold("CreateVolume");
    let life = Life::ask(&site, "data").await;
    site.ledger.held().await;
    // About three times as long as a silent driver keeps its leader.
    for _ in 0..40 {
        assert_eq!(site.renewed(&lease).await, "first");
    }
    site.ledger.release();
    life.bind().await;
    assert_eq!((second.door.calls(), site.ledger.calls("CreateVolume")), (0, 1));
    life.end().await;
    first.sidecar.stop().await;
    site.ledger.assert_clean();
}

#[tokio::test]
async fn controllers_in_one_process_without_their_driver_let_another_replica_work() {
    let Some(site) = Site::with_snapshots("driverless-joint").await else { return };
    let kinds = [Kind::Provisioner, Kind::Attacher, Kind::Resizer, Kind::Snapshotter];
    work_follows(&site, Program::Combined, &kinds).await;
}

#[tokio::test]
async fn a_lease_is_given_back_when_the_calls_of_its_leader_have_ended() {
    let Some(site) = Site::new("last-calls").await else { return };
    let _provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    let program = Program::One(Kind::Attacher, Make::Ours);
    let releases = ["--feature-gates=ReleaseLeaderElectionOnExit=true"];
    let lease = Kind::Attacher.lease(&site.name);
    let mut first = Replica::start(&site, "first", program, &releases);
    first.leads(&site, &lease).await;
    let second = Replica::start(&site, "second", program, &releases);
    let life = Life::begin(&site, "data").await;
    first.door.hold(Kind::Attacher.rpc());
    life.ask_to_attach().await;
    site.ledger.held().await;
    // The signal is sent before its end is waited for.
    let released = async {
        // The leader keeps its Lease for as long as the driver has not answered.
        for _ in 0..4 {
            let holder = site.renewed(&lease).await;
            assert_eq!(holder, "first", "another leads while a call of the first is under way");
        }
        assert_eq!(second.door.calls(), 0);
        site.ledger.release();
    };
    tokio::join!(first.sidecar.stop(), released);
    second.leads(&site, &lease).await;
    life.attached().await;
    life.detach().await;
    life.end().await;
    site.ledger.assert_clean();
}
