use std::{collections::BTreeMap, sync::Barrier};

use super::*;
use crate::{
    error::Error,
    record::{
        Phase, Volume,
        fixtures::{snapshot, volume},
    },
};

fn open(folder: &Path) -> Store {
    Store::open(&folder.join("state"), &folder.join("ballast")).expect("opened")
}

fn put(store: &Store, id: &str) {
    let row = volume(id, 1);
    store
        .update(move |draft| {
            draft.put(row);
            Ok::<_, Error>(())
        })
        .expect("kept");
}

fn ids(store: &Store) -> Vec<String> {
    store.read(|state| state.volumes.iter().map(|volume| volume.id.clone()).collect())
}

#[test]
fn what_was_answered_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path());
    put(&store, "a");
    put(&store, "b");
    store
        .update(|draft| {
            draft.remove::<Volume>("a");
            Ok::<_, Error>(())
        })
        .expect("kept");
    drop(store);
    assert_eq!(ids(&open(folder.path())), ["b"]);
}

#[test]
fn an_update_that_fails_leaves_no_trace() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path());
    put(&store, "a");
    let failed = store.update(|draft| {
        draft.put(volume("b", 1));
        draft.edit("a", |row: &mut Volume| row.name = "renamed".to_owned());
        draft.remove::<Volume>("a");
        Err::<(), _>(Error::Pending("no".to_owned()))
    });
    failed.expect_err("as it said");
    assert_eq!(ids(&store), ["a"]);
    assert!(store.read(|state| state.volumes.named("renamed").is_none()));
    assert!(store.read(|state| state.volumes.named("name of a").is_some()));
}

#[test]
fn an_update_that_panics_fails_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path());
    let panicked = store.update(|draft| {
        draft.put(volume("a", 1));
        assert!(draft.volumes.is_empty(), "as a bug would");
        Ok::<_, Error>(())
    });
    assert!(matches!(panicked, Err(Error::Store(StoreError::Panicked))), "{panicked:?}");
    put(&store, "b");
    assert_eq!(ids(&store), ["b"]);
}

#[test]
fn updates_of_many_threads_are_all_kept_and_see_each_other() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path());
    let start = Barrier::new(16);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                start.wait();
                for number in 0..20 {
                    put(store, &format!("{thread}-{number}"));
                }
            });
        }
    });
    assert_eq!(ids(&store).len(), 320);
    drop(store);
    assert_eq!(ids(&open(folder.path())).len(), 320);
}

#[test]
fn one_process_owns_the_file() {
    let folder = tempfile::tempdir().expect("folder");
    let _store = open(folder.path());
    let second = Store::open(&folder.path().join("state"), &folder.path().join("ballast"));
    assert!(matches!(second, Err(StoreError::Busy { .. })), "{second:?}");
}

#[test]
fn a_file_that_is_no_state_is_refused_with_advice() {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("state"), "nonsense".repeat(1000)).expect("written");
    let refused = Store::open(&folder.path().join("state"), &folder.path().join("ballast"));
    let text = refused.expect_err("no state").to_string();
    assert!(text.contains("wharf driver pool rebuild"), "{text}");
}

#[test]
fn pages_go_on_after_an_id_that_is_gone() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open(folder.path());
    for id in ["a", "b", "c", "d"] {
        put(&store, id);
    }
    let after = |id| {
        store.read(|state| state.volumes.after(id).map(|row| row.id.clone()).collect::<Vec<_>>())
    };
    assert_eq!(after(None), ["a", "b", "c", "d"]);
    assert_eq!(after(Some("b")), ["c", "d"]);
    assert_eq!(after(Some("bb")), ["c", "d"]);
    assert!(after(Some("d")).is_empty());
}

proptest::proptest! {
    /// After any changes, the totals equal the sums over the remaining records.
    #[test]
    fn totals_are_those_of_the_records(
        changes in proptest::collection::vec((0..6_u8, 0..3_u8, 0..4_u64, proptest::bool::ANY, 0..3_u8), 0..40),
    ) {
        let mut state = State::default();
        for (id, family, size, thin, what) in changes {
            let row = Volume {
                family: format!("family-{family}"),
                thin,
                phase: if what == 0 { Phase::Creating } else { Phase::Ready },
                ..volume(&format!("v{id}"), size << 20)
            };
            if what == 2 {
                state.set::<Volume>(&row.id, None);
            } else if id % 2 == 0 {
                state.put(snapshot(&format!("s{id}"), &row));
                state.put(row);
            } else {
                state.put(row);
            }
        }
        let volumes = state.volumes.iter().map(|row| row.owed());
        let all: Vec<_> = volumes.chain(state.snapshots.iter().map(|row| row.owed())).collect();
        let mut families = BTreeMap::<_, u64>::new();
        for owed in &all {
            let largest = families.entry(owed.family).or_default();
            *largest = owed.present.max(*largest);
        }
        let sum = |part: fn(&Owed<'_>) -> u64| all.iter().map(part).sum::<u64>();
        let totals = state.totals();
        proptest::prop_assert_eq!(totals.promised(), sum(|owed| owed.promised));
        proptest::prop_assert_eq!(totals.written(), families.into_values().sum::<u64>());
        proptest::prop_assert_eq!(totals.thin(), sum(|owed| owed.thin));
    }
}
