//! kill -9 at every step of every call: promises are kept, and nothing is left over.

use wharf_csi_sdk::fault::FaultPoint;
use wharf_driver::points::Point;

use crate::{
    bench::{Bench, PoolKind},
    life::Life,
};

const POOL: PoolKind = PoolKind::Reflink(2048);

/// The calls of a life in their order, by what the names of their points begin with. One life can
/// be cut in each of them; creating is cut twice, of a new volume and of a restored one.
const CALLS: [&str; 17] = [
    "Create",
    "Attach",
    "Stage",
    "Publish",
    "Snapshot",
    "Group",
    "Create",
    "Clone",
    "Expand",
    "NodeExpand",
    "Modify",
    "Unpublish",
    "Unstage",
    "Detach",
    "Delete",
    "SnapshotDelete",
    "GroupDelete",
];

/// What the names of points begin with that are no part of such a life on every pool: `devices.rs`
/// cuts a stage at the first, `offline.rs` at the second, and `unshare_crashes.rs` copies at the
/// others.
const ELSEWHERE: [&str; 4] = ["Replay", "Rework", "Reserve", "Unshare"];

/// Each of these but the first of a line is reached by the start after the crash before it.
const RECOVERIES: [&[Point]; 5] = [
    &[Point::GroupCut, Point::GroupDeleteUnlinkedOne],
    &[Point::ExpandPromised, Point::ExpandGrown, Point::ExpandAnnounced, Point::ExpandReady],
    &[Point::DeleteBegun, Point::DeleteUnlinked, Point::DeleteDone],
    &[Point::SnapshotDeleteBegun, Point::SnapshotDeleteUnlinked, Point::SnapshotDeleteDone],
    &[Point::GroupDeleteBegun, Point::GroupDeleteUnlinkedOne],
];

/// The points of one call.
fn points_of(call: &str) -> Vec<Point> {
    let call_of = |point: &Point| {
        let calls = CALLS.into_iter().filter(|call| point.name().starts_with(call));
        calls.max_by_key(|call| call.len()).unwrap_or_else(|| panic!("{point:?} is in no call"))
    };
    let of_a_life = |point: &&Point| ELSEWHERE.iter().all(|other| !point.name().starts_with(other));
    let points = Point::ALL.iter().filter(of_a_life);
    points.filter(|point| call_of(point) == call).copied().collect()
}

async fn survives(bench: &Bench, points: &[Point]) {
    let mut life = Life::new(bench, points).await;
    life.of_volumes().await;
    assert_eq!(life.crashes(), points, "not all of them were reached");
    life.end().await;
}

/// Cuts a life at the first points of all calls, another one at the second points, and so on.
async fn survives_every_point(pool: PoolKind) {
    let Some(bench) = Bench::new(pool) else { return };
    let calls = CALLS.map(points_of);
    let rounds = calls.iter().map(Vec::len).max().unwrap();
    for round in 0..rounds {
        let points: Vec<_> = calls.iter().filter_map(|call| call.get(round)).copied().collect();
        survives(&bench, &points).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_on_image_copy_costs_nothing_but_a_retry() {
    survives_every_point(PoolKind::Copy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_on_reflink_costs_nothing_but_a_retry() {
    survives_every_point(POOL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_while_a_crash_is_recovered_costs_no_more() {
    for pool in [PoolKind::Copy, POOL] {
        let Some(bench) = Bench::new(pool) else { return };
        survives(&bench, &RECOVERIES.concat()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_of_an_ephemeral_volume_costs_nothing_but_a_retry() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    for call in ["Create", "Stage", "Publish", "Unpublish", "Unstage", "Delete"] {
        for point in points_of(call) {
            let points = [point];
            let mut life = Life::new(&bench, &points).await;
            life.of_an_ephemeral_volume().await;
            assert_eq!(life.crashes(), points, "it was not reached");
            life.end().await;
        }
    }
}
