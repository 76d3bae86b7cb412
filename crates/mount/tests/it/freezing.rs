use std::{fs, path::Path};

use wharf_mount::{
    Error, Filesystem,
    freeze::{freeze, thaw},
};

use crate::fixture::{MIB, fixture};

/// Checks the state first: a write to a frozen filesystem would block forever.
fn is_writable(path: &Path) {
    assert!(!thaw(path).unwrap(), "it was left frozen");
    fs::write(path.join("file"), "data").unwrap();
}

#[test]
fn a_filesystem_is_thawed_when_asked_and_when_dropped() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, path) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    let frozen = freeze(&path).unwrap();
    assert_eq!(frozen.mount_point(), path);
    let error = freeze(&path).unwrap_err();
    assert!(matches!(error, Error::Busy { operation: "freeze", .. }), "{error}");
    frozen.thaw().unwrap();
    is_writable(&path);

    drop(freeze(&path).unwrap());
    is_writable(&path);
}

#[test]
fn a_panic_thaws() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, path) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    let panicked = std::panic::catch_unwind(|| {
        let _frozen = freeze(&path).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    is_writable(&path);
}

#[test]
fn what_a_killed_process_froze_is_thawed() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, path) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    std::mem::forget(freeze(&path).unwrap());
    assert!(thaw(&path).unwrap());
    is_writable(&path);
}

#[test]
fn to_be_thawed_by_another_is_no_failure() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, path) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    let frozen = freeze(&path).unwrap();
    assert!(thaw(&path).unwrap());
    frozen.thaw().unwrap();
}
