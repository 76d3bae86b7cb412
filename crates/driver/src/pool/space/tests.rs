use super::*;
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
