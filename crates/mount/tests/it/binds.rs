use std::{
    fs::{self, File},
    os::unix::fs::{FileTypeExt, symlink},
};

use wharf_mount::{Error, Filesystem, loopdev::LoopOptions, mount, mountinfo};

use crate::fixture::{MIB, fixture};

#[test]
fn a_folder_is_bound_and_its_source_stays_writable() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, staged) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    fs::write(staged.join("file"), "data").unwrap();
    for read_only in [false, true] {
        let target = fixture.folder(if read_only { "ro" } else { "rw" });
        fixture.will_mount(&target);
        mount::bind(&staged, &target, read_only).unwrap();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "data");
        assert_eq!(mountinfo::at(&target).unwrap().unwrap().read_only(), read_only);
        assert_eq!(File::create(target.join("new")).is_err(), read_only);
        File::create(staged.join("new")).unwrap();
    }
    let error = mount::unmount(&staged);
    assert!(error.unwrap(), "a bind mount does not keep its source busy");
    assert!(fixture.path("ro/file").exists());
}

#[test]
fn a_device_node_is_bound_onto_a_file() {
    let Some(fixture) = fixture(&[]) else { return };
    let attached = fixture.attach(&fixture.image("image", MIB), &LoopOptions::default());
    let target = fixture.path("block");
    File::create(&target).unwrap();
    fixture.will_mount(&target);
    mount::bind(&attached.path, &target, false).unwrap();
    assert!(target.metadata().unwrap().file_type().is_block_device());
    let found = mountinfo::at(&target).unwrap().unwrap();
    assert_eq!(found.root.file_name(), attached.path.file_name());
    assert!(mount::unmount(&target).unwrap());
    assert!(target.metadata().unwrap().is_file());
}

#[test]
fn neither_end_of_a_bind_may_be_a_symlink() {
    let Some(fixture) = fixture(&[]) else { return };
    let (real, other, link) =
        (fixture.folder("real"), fixture.folder("other"), fixture.path("link"));
    symlink(&real, &link).unwrap();
    for (source, target) in [(&link, &other), (&other, &link)] {
        fixture.will_mount(target);
        let error = mount::bind(source, target, false).unwrap_err();
        assert!(matches!(error, Error::Symlink { .. }), "{error}");
    }
    let error = mount::bind(&real, &fixture.path("absent"), false).unwrap_err();
    assert_eq!(error.kind(), Some(std::io::ErrorKind::NotFound));
}

#[test]
fn the_topmost_of_two_is_unmounted_first() {
    let Some(fixture) = fixture(&[]) else { return };
    let (first, second) = (fixture.folder("first"), fixture.folder("second"));
    let target = fixture.folder("target");
    fixture.will_mount(&target);
    mount::bind(&first, &target, false).unwrap();
    mount::bind(&second, &target, false).unwrap();
    let name = || mountinfo::at(&target).unwrap().map(|mount| mount.root.ends_with("second"));
    assert_eq!(name(), Some(true));
    assert!(mount::unmount(&target).unwrap());
    assert_eq!(name(), Some(false));
    assert!(mount::unmount(&target).unwrap());
    assert_eq!(name(), None);
}
