use proptest::{collection::vec, prelude::*};

use super::*;

/// An operation of the model: numbers of the claimed keys, and whether exclusively.
type Wanted = Vec<(u8, bool)>;

fn claims(wanted: &Wanted) -> Claims {
    wanted.iter().fold(Claims::default(), |claims, (key, exclusive)| {
        let key = Key::Volume(key.to_string().into());
        if *exclusive { claims.exclusive(key) } else { claims.shared(key) }
    })
}

/// Two operations are compatible unless one claims a key exclusively that the other claims at all.
fn compatible(one: &Wanted, other: &Wanted) -> bool {
    one.iter().all(|(key, exclusive)| {
        other.iter().all(|(others, shared_not)| key != others || !(*exclusive || *shared_not))
    })
}

proptest! {
    /// Any sequence of starts and ends admits what the model admits, and leaves the table empty.
    #[test]
    fn admits_what_the_model_admits(
        steps in vec((vec((0..5u8, any::<bool>()), 1..4), any::<prop::sample::Index>(), 0..3u8), 1..60),
    ) {
        let mut table = LockTable::default();
        let mut running: Vec<Wanted> = Vec::new();
        for (wanted, victim, kind) in steps {
            if kind == 0 && !running.is_empty() {
                let ended = running.swap_remove(victim.index(running.len()));
                table.give_back("op", &claims(&ended));
            } else {
                let admitted = running.iter().all(|other| compatible(&wanted, other));
                prop_assert_eq!(table.take("op", &claims(&wanted)).is_ok(), admitted);
                if admitted {
                    running.push(wanted);
                }
            }
        }
        for ended in running {
            table.give_back("op", &claims(&ended));
        }
        prop_assert!(table.is_empty());
    }
}

#[test]
fn a_conflict_names_who_is_in_the_way() {
    let mut table = LockTable::default();
    let volume = Key::Volume("v1".into());
    table.take("DeleteVolume", &Claims::default().exclusive(volume.clone())).unwrap();
    let refused = table.take("NodePublishVolume", &Claims::default().shared(volume.clone()));
    assert_eq!(refused, Err(Conflict { key: volume, holder: "DeleteVolume" }));
}
