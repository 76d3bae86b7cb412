use std::{fs::File, path::Path};

use wharf_mount::{
    Error, Filesystem,
    grow::{fits, grow_mounted, grow_offline_ext4},
    loopdev::{HeldLoop, Loop},
    mount, space,
};

use crate::fixture::{DEADLINE, MIB, fixture};

fn enlarge(image: &Path, attached: &Loop, size: u64) {
    let image = File::options().write(true).open(image).unwrap();
    space::allocate(&image, size, false).unwrap();
    let held = HeldLoop::open(attached.number, attached.identity(), None).unwrap().unwrap();
    held.set_capacity().unwrap();
}

#[test]
fn xfs_grows_while_mounted() {
    let Some(fixture) = fixture(&["mkfs.xfs"]) else { return };
    let attached = fixture.formatted("image", Filesystem::Xfs, 300 * MIB);
    assert!(fits(Filesystem::Xfs, &attached.path).unwrap());
    let target = fixture.folder("target");
    fixture.mount(&attached.path, Filesystem::Xfs, &target, &[]);
    let before = space::usage(&target).unwrap().total;
    grow_mounted(Filesystem::Xfs, &target).unwrap();
    assert_eq!(space::usage(&target).unwrap().total, before, "it filled its device");

    enlarge(&fixture.path("image"), &attached, 500 * MIB);
    grow_mounted(Filesystem::Xfs, &target).unwrap();
    assert!(space::usage(&target).unwrap().total > before + 190 * MIB);
    assert!(mount::unmount(&target).unwrap());
    assert!(fits(Filesystem::Xfs, &attached.path).unwrap());
}

#[test]
fn ext4_grows_offline() {
    let Some(fixture) = fixture(&["mkfs.ext4", "e2fsck", "resize2fs"]) else { return };
    let attached = fixture.formatted("image", Filesystem::Ext4, 32 * MIB);
    let fs = Filesystem::Ext4;
    assert!(fits(fs, &attached.path).unwrap());
    // Sizes that end inside a block group, at its end, and just after it.
    for size in [70 * MIB, 128 * MIB, 128 * MIB + 16384, 200 * MIB] {
        enlarge(&fixture.path("image"), &attached, size);
        grow_offline_ext4(&attached.path, None, DEADLINE).unwrap();
        assert!(fits(fs, &attached.path).unwrap(), "{size}");
    }
    enlarge(&fixture.path("image"), &attached, 240 * MIB);
    assert!(!fits(fs, &attached.path).unwrap());
    let target = fixture.folder("target");
    fixture.mount(&attached.path, fs, &target, &[]);
    assert!(space::usage(&target).unwrap().total > 180 * MIB);
}

#[test]
fn ext4_grows_while_mounted_or_says_which_capability_is_missing() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (attached, target) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    let before = space::usage(&target).unwrap().total;
    enlarge(&fixture.path("image"), &attached, 64 * MIB);
    match grow_mounted(Filesystem::Ext4, &target) {
        Ok(()) => assert!(space::usage(&target).unwrap().total > before),
        Err(error) => {
            assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
            assert!(error.to_string().contains("CAP_SYS_RESOURCE"), "{error}");
        }
    }
}

#[test]
fn another_filesystem_than_expected_is_named() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let attached = fixture.formatted("image", Filesystem::Ext4, 32 * MIB);
    let error = fits(Filesystem::Xfs, &attached.path).unwrap_err().to_string();
    assert!(error.contains("expected xfs, found ext4"), "{error}");
}

/// XFS requires free space for the whole range of an allocation, even if most of it is allocated.
#[test]
fn a_file_grows_into_the_last_free_space_of_its_filesystem() {
    let Some(fixture) = fixture(&["mkfs.xfs"]) else { return };
    let (_, pool) = fixture.mounted("pool", Filesystem::Xfs, 300 * MIB);
    let file = File::options().read(true).write(true).create_new(true).open(pool.join("file"));
    let file = file.unwrap();
    let available = space::usage(&pool).unwrap().available;
    let large = available / 4 * 3 / MIB * MIB;
    space::allocate(&file, large, true).unwrap();
    let grown = large + 16 * MIB;
    for _ in 0..2 {
        space::allocate(&file, grown, true).unwrap();
        assert_eq!(space::size(&file).unwrap(), grown);
        assert_eq!(space::allocated(&file).unwrap(), grown);
    }
    // Only missing blocks are allocated.
    space::discard(&file, MIB..9 * MIB).unwrap();
    space::allocate(&file, grown, true).unwrap();
    assert_eq!(space::allocated(&file).unwrap(), grown);
}
