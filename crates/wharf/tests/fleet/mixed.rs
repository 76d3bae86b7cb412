//! Mixed fleets: each of our controllers among Go's, and each of Go's among ours.

use crate::{
    audit,
    life::Life,
    program::{Kind, Make, Program},
    role,
    sidecar::Order,
    site::Site,
};

/// A whole life in a fleet where one sidecar is of another make than the others. The attacher is
/// ours unless it is that one, since there may be no other.
async fn alone(name: &str, one: Kind, make: Make) {
    let Some(site) = Site::with_snapshots(name).await else { return };
    let make_of = |kind| match kind {
        _ if kind == one => make,
        Kind::Attacher => Make::Ours,
        _ => make.other(),
    };
    let Some(_fleet) = site.start_all(make_of) else { return };
    Life::whole(&site, "data").await;
    site.ledger.assert_clean();
    audit::assert_allowed(&site);
}

macro_rules! fleets {
    ($($test:ident: $make:ident $kind:ident,)*) => {$(
        #[tokio::test]
        async fn $test() {
            let name = stringify!($test).replace('_', "-");
            alone(&name, Kind::$kind, Make::$make).await;
        }
    )*};
}

fleets! {
    our_attacher_among_go: Ours Attacher,
    our_provisioner_among_go: Ours Provisioner,
    our_resizer_among_go: Ours Resizer,
    our_snapshotter_among_go: Ours Snapshotter,
    our_snapshot_controller_among_go: Ours SnapshotController,
    go_attacher_among_ours: Go Attacher,
    go_provisioner_among_ours: Go Provisioner,
    go_resizer_among_ours: Go Resizer,
    go_snapshotter_among_ours: Go Snapshotter,
    go_snapshot_controller_among_ours: Go SnapshotController,
}

/// Images may change before manifests do.
#[tokio::test]
async fn our_provisioner_works_with_the_roles_of_an_older_one() {
    let Some(site) = Site::with_snapshots("older-roles").await else { return };
    let beside = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Provisioner);
    let _beside: Vec<_> = beside.map(|kind| site.start(kind, Make::Ours).unwrap()).collect();
    let ours = site.order(Program::One(Kind::Provisioner, Make::Ours), None);
    let _provisioner = Order { user: role::OLDER, ..ours }.start().unwrap();
    Life::whole(&site, "data").await;
    site.ledger.assert_clean();
}
