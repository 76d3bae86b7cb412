use super::*;
use crate::backend::BackendKind;
use crate::record::fixtures::{snapshot, volume};
use crate::record::{Snapshot, Volume};
use crate::store::State;

const GIB: u64 = 1 << 30;
const DISK: Disk = Disk { total: 100 * GIB, available: 100 * GIB };

fn state(volumes: Vec<Volume>, snapshots: Vec<Snapshot>) -> State {
    let mut state = State::default();
    for volume in volumes {
        state.volumes.put(volume);
    }
    for snapshot in snapshots {
        state.snapshots.put(snapshot);
    }
    state
}

#[test]
fn a_thick_volume_is_owed_its_size_and_has_it() {
    let state = state(vec![volume("a", 10 * GIB)], vec![]);
    let disk = Disk { available: 90 * GIB, ..DISK };
    let account = Account::of(&state, disk, GIB);
    assert_eq!((account.promised, account.written), (10 * GIB, 10 * GIB));
    assert_eq!(account.capacity(), 89 * GIB);
}

#[test]
fn a_snapshot_is_owed_as_much_again_though_it_shares_every_block() {
    let volume = volume("a", 10 * GIB);
    let cut = snapshot("s", &volume);
    let disk = Disk { available: 90 * GIB, ..DISK };
    let account = Account::of(&state(vec![volume], vec![cut]), disk, 0);
    assert_eq!((account.promised, account.written), (20 * GIB, 10 * GIB));
    assert_eq!(account.capacity(), 80 * GIB);
}

#[test]
fn a_snapshot_that_is_a_copy_is_owed_its_size_until_it_is_made() {
    let copied = Volume { backend: BackendKind::ImageCopy, ..volume("a", 10 * GIB) };
    let made = snapshot("s", &copied);
    let making = Snapshot { phase: Phase::Creating, ..made.clone() };
    for (cut, available, capacity) in [(making, 90 * GIB, 80 * GIB), (made, 80 * GIB, 80 * GIB)] {
        let disk = Disk { available, ..DISK };
        let account = Account::of(&state(vec![copied.clone()], vec![cut]), disk, 0);
        assert_eq!(account.capacity(), capacity);
    }
}

proptest::proptest! {
    /// On a disk that holds what is written and nothing else, all but the floor and what overwriting would take can be
    /// promised, and no byte is counted twice.
    #[test]
    fn capacity_is_what_is_left_when_every_promise_is_kept(
        volumes in proptest::collection::vec((1..5_u64, proptest::bool::ANY, proptest::bool::ANY, 0..3_usize), 0..6),
        floor in 0..3_u64,
    ) {
        let (mut rows, mut cuts, mut taken, mut owed) = (Vec::new(), Vec::new(), 0, 0);
        for (index, (size, copied, thin, snapshots)) in volumes.into_iter().enumerate() {
            let backend = if copied { BackendKind::ImageCopy } else { BackendKind::ImageReflink };
            let row = Volume { backend, thin, ..volume(&format!("v{index}"), size * GIB) };
            let bytes = row.promised();
            taken += bytes;
            for cut in 0..snapshots {
                *(if copied { &mut taken } else { &mut owed }) += bytes;
                cuts.push(snapshot(&format!("s{index}-{cut}"), &row));
            }
            rows.push(row);
        }
        let disk = Disk { available: DISK.total - taken, ..DISK };
        let account = Account::of(&state(rows.clone(), cuts.clone()), disk, floor * GIB);
        let capacity = account.capacity();
        proptest::prop_assert_eq!(capacity, DISK.total - taken - owed - floor * GIB);
        // The largest volume is made: then there is nothing more to promise, and all that is owed still fits.
        rows.push(volume("largest", capacity));
        let disk = Disk { available: disk.available - capacity, ..disk };
        let account = Account::of(&state(rows, cuts), disk, floor * GIB);
        proptest::prop_assert_eq!(account.capacity(), 0);
        proptest::prop_assert_eq!(disk.available, owed + floor * GIB);
    }
}

#[test]
fn what_is_in_the_making_is_owed_and_not_yet_there() {
    let mut creating = volume("a", 10 * GIB);
    creating.phase = Phase::Creating;
    let mut expanding = volume("b", 10 * GIB);
    expanding.phase = Phase::Expanding { to: 15 * GIB };
    let disk = Disk { available: 90 * GIB, ..DISK };
    let account = Account::of(&state(vec![creating, expanding], vec![]), disk, 0);
    assert_eq!((account.promised, account.written), (25 * GIB, 10 * GIB));
    assert_eq!(account.capacity(), 75 * GIB);
}

#[test]
fn a_thin_volume_is_owed_nothing() {
    let mut thin = volume("a", 200 * GIB);
    thin.thin = true;
    let account = Account::of(&state(vec![thin], vec![]), DISK, 0);
    assert_eq!(account.capacity(), 100 * GIB);
}

#[test]
fn what_others_take_of_the_disk_cannot_be_promised() {
    let disk = Disk { available: 3 * GIB, ..DISK };
    let account = Account::of(&State::default(), disk, GIB);
    assert_eq!(account.capacity(), 2 * GIB);
    assert!(!account.below_floor());
    let full = Account::of(&State::default(), Disk { available: GIB / 2, ..DISK }, GIB);
    assert_eq!(full.capacity(), 0);
    assert!(full.below_floor());
}
