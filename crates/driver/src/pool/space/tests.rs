use super::*;
use crate::{
    backend::BackendKind,
    record::{
        Blocks, Phase, Snapshot, Volume,
        fixtures::{snapshot, volume},
    },
    store::State,
};

const GIB: u64 = 1 << 30;
const DISK: Disk = Disk { total: 100 * GIB, available: 100 * GIB };
/// Minimum floor of a disk of 100 GiB.
const OWN: u64 = 64 << 20;

fn with_floor(bytes: u64) -> PoolSettings {
    PoolSettings { floor: Some(bytes), ..PoolSettings::default() }
}

fn state(volumes: Vec<Volume>, snapshots: Vec<Snapshot>) -> State {
    let mut state = State::default();
    for volume in volumes {
        state.put(volume);
    }
    for snapshot in snapshots {
        state.put(snapshot);
    }
    state
}

#[test]
fn a_thick_volume_is_owed_its_size_and_has_it() {
    let state = state(vec![volume("a", 10 * GIB)], vec![]);
    let disk = Disk { available: 90 * GIB, ..DISK };
    let account = Account::of(&state, disk, &with_floor(GIB));
    assert_eq!((account.promised, account.written), (10 * GIB, 10 * GIB));
    assert_eq!(account.capacity(), 89 * GIB);
}

#[test]
fn a_snapshot_is_owed_as_much_again_though_it_shares_every_block() {
    let volume = volume("a", 10 * GIB);
    let cut = snapshot("s", &volume);
    let disk = Disk { available: 90 * GIB, ..DISK };
    let account = Account::of(&state(vec![volume], vec![cut]), disk, &with_floor(0));
    assert_eq!((account.promised, account.written), (20 * GIB, 10 * GIB));
    assert_eq!(account.capacity(), 80 * GIB - OWN);
}

#[test]
fn a_snapshot_that_is_a_copy_is_owed_its_size_until_it_is_made() {
    let copied = Volume { backend: BackendKind::ImageCopy, ..volume("a", 10 * GIB) };
    let made = snapshot("s", &copied);
    let making = Snapshot { phase: Phase::Creating, ..made.clone() };
    for (cut, available, capacity) in [(making, 90 * GIB, 80 * GIB), (made, 80 * GIB, 80 * GIB)] {
        let disk = Disk { available, ..DISK };
        let account = Account::of(&state(vec![copied.clone()], vec![cut]), disk, &with_floor(0));
        assert_eq!(account.capacity(), capacity - OWN);
    }
}

proptest::proptest! {
    /// If the disk holds only what is written, everything can be promised but the floor and the
    /// space for overwriting, and no byte is counted twice.
    #[test]
    fn capacity_is_what_is_left_when_every_promise_is_kept(
        volumes in proptest::collection::vec((1..5_u64, proptest::bool::ANY, proptest::bool::ANY, 0..3_usize), 0..6),
        floor in 1..4_u64,
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
        let account = Account::of(&state(rows.clone(), cuts.clone()), disk, &with_floor(floor * GIB));
        let capacity = account.capacity();
        proptest::prop_assert_eq!(capacity, DISK.total - taken - owed - floor * GIB);
        // After creating the largest volume, nothing more can be promised, and everything promised
        // still fits.
        rows.push(volume("largest", capacity));
        let disk = Disk { available: disk.available - capacity, ..disk };
        let account = Account::of(&state(rows, cuts), disk, &with_floor(floor * GIB));
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
    let account = Account::of(&state(vec![creating, expanding], vec![]), disk, &with_floor(0));
    assert_eq!((account.promised, account.written), (25 * GIB, 10 * GIB));
    assert_eq!(account.capacity(), 75 * GIB - OWN);
}

#[test]
fn a_thin_volume_is_owed_nothing() {
    let mut thin = volume("a", 200 * GIB);
    thin.thin = true;
    let account = Account::of(&state(vec![thin], vec![]), DISK, &with_floor(0));
    assert_eq!(account.capacity(), 100 * GIB - OWN);
}

#[test]
fn what_others_take_of_the_disk_cannot_be_promised() {
    let disk = Disk { available: 3 * GIB, ..DISK };
    let account = Account::of(&State::default(), disk, &with_floor(GIB));
    assert_eq!(account.capacity(), 2 * GIB);
    assert!(!account.below_floor());
    let full =
        Account::of(&State::default(), Disk { available: GIB / 2, ..DISK }, &with_floor(GIB));
    assert_eq!(full.capacity(), 0);
    assert!(full.below_floor());
}

#[test]
fn a_copy_with_blocks_of_its_own_is_owed_nothing_more() {
    let row = volume("a", 10 * GIB);
    for blocks in [Blocks::Unsharing { bytes: GIB }, Blocks::Own] {
        let cut = Snapshot { blocks, family: "s".into(), ..snapshot("s", &row) };
        let clone = Volume { blocks, ..volume("c", 10 * GIB) };
        let disk = Disk { available: 70 * GIB, ..DISK };
        let account =
            Account::of(&state(vec![row.clone(), clone], vec![cut]), disk, &with_floor(0));
        assert_eq!((account.promised, account.written), (20 * GIB, 20 * GIB));
        assert_eq!(account.capacity(), 70 * GIB - OWN);
    }
    let making = Snapshot {
        blocks: Blocks::Unsharing { bytes: 10 * GIB },
        phase: Phase::Creating,
        ..snapshot("s", &row)
    };
    let disk = Disk { available: 90 * GIB, ..DISK };
    let account = Account::of(&state(vec![row], vec![making]), disk, &with_floor(0));
    assert_eq!(account.capacity(), 80 * GIB - OWN);
}

#[test]
fn thin_volumes_are_bound_by_ratio_disk_and_floor() {
    let settings = PoolSettings {
        thin_ratio: "1.5".parse().expect("a ratio"),
        thin_floor: "10%".parse().expect("a share"),
        ..with_floor(0)
    };
    let thin = |id: &str, size| Volume { thin: true, ..volume(id, size * GIB) };
    let growing = Volume { phase: Phase::Expanding { to: 60 * GIB }, ..thin("b", 40) };
    let some = state(vec![thin("a", 40), growing], vec![]);
    let account = Account::of(&some, DISK, &settings);
    assert_eq!((account.thin_promised, account.thin_limit), (100 * GIB, 150 * GIB));
    assert_eq!(account.thin_capacity(), 50 * GIB);
    let none = Account::of(&State::default(), DISK, &settings);
    assert_eq!(none.thin_capacity(), 100 * GIB);
    let full = Account::of(&some, Disk { available: 10 * GIB - 1, ..DISK }, &settings);
    assert!(full.below_thin_floor());
    assert_eq!(full.thin_capacity(), 0);
}
