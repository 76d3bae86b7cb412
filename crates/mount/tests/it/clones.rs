use std::{fs::File, io::Write, os::unix::fs::FileExt};

use wharf_mount::{Error, Filesystem, clone, extents, space, sync, unshare};

use crate::fixture::{MIB, fixture};

#[test]
fn files_on_xfs_share_their_blocks() {
    let Some(fixture) = fixture(&["mkfs.xfs"]) else { return };
    let (_, pool) = fixture.mounted("pool", Filesystem::Xfs, 300 * MIB);
    assert!(clone::reflink_supported(&pool).unwrap());
    let mut file = tempfile::tempfile_in(&pool).unwrap();
    file.write_all(b"five!").unwrap();
    assert!(clone::shares_blocks(&file).unwrap());
    assert_eq!(file.metadata().unwrap().len(), 5);
    assert_eq!(pool.read_dir().unwrap().count(), 0, "nothing is left behind");

    let open = |name: &str| {
        let path = pool.join(name);
        File::options().read(true).write(true).create_new(true).open(path).unwrap()
    };
    let (src, dst) = (open("src"), open("dst"));
    src.write_all_at(&[5; 1 << 20], 0).unwrap();
    clone::reflink(&src, &dst).unwrap();
    src.write_all_at(&[6; 4096], 8192).unwrap();
    let mut found = [0; 1];
    dst.read_exact_at(&mut found, 8192).unwrap();
    assert_eq!(found, [5], "the clone does not follow");

    let (of_src, of_dst) = (extents::map(&src, true).unwrap(), extents::map(&dst, true).unwrap());
    let shared: u64 =
        of_src.iter().filter(|extent| extent.shared).map(|extent| extent.length).sum();
    assert_eq!(shared, MIB - 4096, "{of_src:?}");
    assert_eq!(of_src[0].physical, of_dst[0].physical);
    assert_eq!(extents::count(&dst).unwrap() as usize, of_dst.len());
    sync::folder(&pool).unwrap();
}

#[test]
fn ext4_says_that_it_cannot() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, pool) = fixture.mounted("pool", Filesystem::Ext4, 32 * MIB);
    assert!(!clone::reflink_supported(&pool).unwrap());
    let src = tempfile::tempfile_in(&pool).unwrap();
    assert!(!clone::shares_blocks(&src).unwrap());
    let dst = tempfile::tempfile_in(&pool).unwrap();
    let error = clone::reflink(&src, &dst).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = clone::reflink_supported(&pool.join("absent")).unwrap_err();
    assert_eq!(error.kind(), Some(std::io::ErrorKind::NotFound));
}

#[test]
fn a_copy_between_filesystems_keeps_its_holes() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, pool) = fixture.mounted("pool", Filesystem::Ext4, 32 * MIB);
    let src = fixture.image("sparse", 16 * MIB);
    src.write_all_at(&[3; 4096], 8 * MIB).unwrap();
    let dst = tempfile::tempfile_in(&pool).unwrap();
    clone::copy_sparse(&src, &dst, |_| true).unwrap();
    assert_eq!(space::size(&dst).unwrap(), 16 * MIB);
    assert!(space::allocated(&dst).unwrap() < MIB);
    let mut found = [0; 1];
    dst.read_exact_at(&mut found, 8 * MIB + 4095).unwrap();
    assert_eq!(found, [3]);
}

#[test]
fn more_extents_than_one_call_returns_are_all_mapped() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, pool) = fixture.mounted("pool", Filesystem::Ext4, 32 * MIB);
    let file = tempfile::tempfile_in(&pool).unwrap();
    let wanted: Vec<u64> = (0..600).map(|index| index * 8192).collect();
    for offset in &wanted {
        file.write_all_at(&[1; 4096], *offset).unwrap();
    }
    let extents = extents::map(&file, true).unwrap();
    assert_eq!(extents.iter().map(|extent| extent.logical).collect::<Vec<_>>(), wanted);
    assert_eq!(extents::count(&file).unwrap(), 600);
}

#[test]
fn preallocated_blocks_are_unwritten_and_holes_are_not_listed() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, pool) = fixture.mounted("pool", Filesystem::Ext4, 32 * MIB);
    let file = tempfile::tempfile_in(&pool).unwrap();
    assert_eq!(extents::map(&file, true).unwrap(), []);
    space::allocate(&file, MIB, true).unwrap();
    space::allocate(&file, 2 * MIB, false).unwrap();
    let extents = extents::map(&file, true).unwrap();
    assert!(extents.iter().all(|extent| extent.unwritten), "{extents:?}");
    assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), MIB);
}

/// Fills the filesystem completely.
fn fill(pool: &std::path::Path) {
    let file = File::create(pool.join("filler")).unwrap();
    let mut size = 0;
    for step in [16 * MIB, MIB, 4096] {
        while space::allocate(&file, size + step, true).is_ok() {
            size += step;
        }
    }
}

#[test]
fn a_copy_gets_reserved_blocks_of_its_own_on_a_full_disk() {
    const SIZE: u64 = 32 * MIB;
    let Some(fixture) = fixture(&["mkfs.xfs"]) else { return };
    let (_, pool) = fixture.mounted("pool", Filesystem::Xfs, 300 * MIB);
    let open = |name: &str| {
        let path = pool.join(name);
        File::options().read(true).write(true).create_new(true).open(path).unwrap()
    };
    let (src, dst, reserve, pin) = (open("src"), open("dst"), open("reserve"), open("pin"));
    let whole = vec![5; usize::try_from(SIZE).unwrap()];
    space::allocate(&src, 2 * SIZE, true).unwrap();
    src.write_all_at(&whole, 0).unwrap();
    space::allocate(&reserve, 2 * SIZE, true).unwrap();
    clone::reflink(&src, &dst).unwrap();

    // Allocated blocks that were never written are not shared.
    let shared = unshare::shared(&dst, 0..2 * SIZE).unwrap();
    assert_eq!(shared.first(), Some(&(0..SIZE)));
    assert_eq!(unshare::length(&shared), SIZE);
    assert_eq!(unshare::shared(&dst, MIB..2 * MIB).unwrap().first(), Some(&(MIB..2 * MIB)));
    unshare::keep_only(&reserve, &shared).unwrap();
    assert_eq!(space::allocated(&reserve).unwrap(), SIZE);
    fill(&pool);
    unshare::copy(&dst, &reserve, &shared).unwrap();
    unshare::reflink(&dst, &pin, &shared).unwrap();
    unshare::reflink(&reserve, &dst, &shared).unwrap();
    dst.sync_all().unwrap();
    pin.set_len(0).unwrap();
    assert_eq!(unshare::shared(&src, 0..SIZE).unwrap(), []);
    assert_eq!(unshare::shared(&reserve, 0..SIZE).unwrap(), shared);
    reserve.set_len(0).unwrap();
    assert_eq!(unshare::shared(&dst, 0..SIZE).unwrap(), []);

    src.write_all_at(&vec![6; whole.len()], 0).unwrap();
    src.sync_all().unwrap();
    let mut found = vec![0; whole.len()];
    dst.read_exact_at(&mut found, 0).unwrap();
    assert!(found == whole);
}
