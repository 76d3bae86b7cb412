use super::*;
use crate::record::{
    Access, Stage, Usage,
    fixtures::{snapshot, volume},
};

fn policy(kinds: &str) -> SharingPolicy {
    let kinds = kinds.parse().expect(kinds);
    SharingPolicy { kinds, own_filesystem: true, copy_on_write: false }
}

fn state_of(volumes: &[Volume], snapshots: &[Snapshot]) -> State {
    let mut state = State::default();
    volumes.iter().for_each(|it| state.put(it.clone()));
    snapshots.iter().for_each(|it| state.put(it.clone()));
    state
}

fn thin(id: &str) -> Volume {
    Volume { thin: true, ..volume(id, 8) }
}

fn clone_of(source: &Volume, id: &str) -> Volume {
    Volume { family: source.family.clone(), ..volume(id, 8) }
}

fn ids(copies: &[SharedCopy]) -> Vec<&str> {
    copies.iter().map(|it| it.id.as_str()).collect()
}

#[test]
fn blocks_stay_shared_only_where_nobody_else_can_take_the_space() {
    let thick = state_of(&[volume("a", 8)], &[snapshot("s", &volume("a", 8))]);
    let with_thin = state_of(&[volume("a", 8), thin("b")], &[]);
    let with_thin_snapshot = state_of(&[volume("a", 8)], &[snapshot("s", &thin("gone"))]);
    let shared_disk = SharingPolicy { own_filesystem: false, ..policy("thick") };
    for (policy, state, may) in [
        (policy("thick"), &thick, true),
        (policy("thick,thin"), &thick, false),
        (policy("thin"), &thick, false),
        (shared_disk, &thick, false),
        (policy("thick"), &with_thin, false),
        (policy("thick"), &with_thin_snapshot, false),
    ] {
        assert_eq!(policy.may_share(state), may, "{policy:?}");
    }
}

#[test]
fn a_copy_gets_its_own_blocks_if_a_thick_volume_would_share_them() {
    let state = state_of(&[volume("a", 8), thin("b")], &[]);
    let of = |family, blocks| Origin { family, blocks };
    let unsharing = Blocks::Unsharing { bytes: 8 };
    let both = policy("thick,thin");
    for (origin, thick, must) in [
        (of("a", Blocks::Shared), false, true),
        (of("a", Blocks::Shared), true, true),
        (of("b", Blocks::Shared), true, true),
        (of("b", Blocks::Shared), false, false),
        (of("s", Blocks::Own), false, false),
        (of("s", unsharing), false, true),
    ] {
        assert_eq!(both.must_unshare(&state, origin, thick), must, "{origin:?}, thick {thick}");
    }
    let btrfs = SharingPolicy { copy_on_write: true, ..both };
    assert!(!btrfs.must_unshare(&state, of("a", Blocks::Shared), true));
    let thick = state_of(&[volume("a", 8)], &[]);
    assert!(!policy("thick").must_unshare(&thick, of("a", Blocks::Shared), true));
    assert!(policy("thick").must_unshare(&thick, of("a", unsharing), false));
}

#[test]
fn what_was_shared_is_unshared_once_it_must_not_be() {
    let a = volume("a", 8);
    let (cut, clone) = (snapshot("s", &a), clone_of(&a, "c"));
    let own = Snapshot { blocks: Blocks::Own, family: "own".into(), ..snapshot("own", &a) };
    let copied = Volume { backend: BackendKind::ImageCopy, ..volume("copied", 8) };
    let cut_of_copy = snapshot("copy", &copied);
    let alone = thin("thin");
    let cut_of_thin = snapshot("thin-cut", &alone);
    // A clone of a copied volume that was requested with shared blocks.
    let of_copied = clone_of(&copied, "d");
    let volumes = [a.clone(), clone.clone(), copied, of_copied, alone];
    let state = state_of(&volumes, &[cut.clone(), own, cut_of_copy, cut_of_thin]);
    assert_eq!(ids(&policy("thick,thin").to_unshare(&state)), ["c", "s", "d"]);

    let thick = state_of(&[a.clone(), clone.clone()], std::slice::from_ref(&cut));
    assert_eq!(policy("thick").to_unshare(&thick), []);
    // A volume in use cannot be unshared: another one of its family is.
    let usage =
        Usage { mode: wharf_csi_sdk::types::AccessMode::SingleNodeWriter, access: Access::Block };
    let stage = Stage { path: "/stage".into(), usage, read_only: false, complete: true };
    let used = Volume { stage: Some(stage), ..clone };
    let in_use = state_of(&[a, used], &[]);
    assert_eq!(ids(&policy("thick,thin").to_unshare(&in_use)), ["a"]);
    // Snapshots of a deleted volume block nothing.
    let orphans = state_of(&[], &[cut.clone(), Snapshot { id: "t".into(), ..cut }]);
    assert_eq!(policy("thick,thin").to_unshare(&orphans), []);
}
