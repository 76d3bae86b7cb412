use std::{
    error::Error as _,
    fs::File,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    io::Errno,
    mount::{MountPropagationFlags, mount_change},
};
use wharf_mount::{
    Error, Filesystem,
    format::{FormatOptions, format},
    loopdev::{self, LoopOptions},
    mount::{self, MountOptions},
    mountinfo, space,
};

use crate::fixture::{DEADLINE, MIB, fixture, needs};

fn flags(flags: &[&str]) -> MountOptions {
    MountOptions { read_only: false, flags: flags.iter().map(|&flag| flag.to_owned()).collect() }
}

#[test]
fn a_filesystem_is_mounted_and_unmounted() {
    for fs in Filesystem::ALL {
        let (mkfs, size) = needs(fs);
        let Some(fixture) = fixture(&[mkfs]) else { continue };
        let (attached, target) = fixture.mounted("image", fs, size);
        let found = mountinfo::at(&target).unwrap().unwrap();
        assert_eq!(found.filesystem, fs.kernel_name());
        assert_eq!(found.device, loopdev::device_number(&attached.path).unwrap());
        assert_eq!(found.source, attached.path.to_str().unwrap());
        assert_eq!(mountinfo::of_device(found.device).unwrap(), [found]);
        let usage = space::usage(&target).unwrap();
        assert!(usage.total > size / 2 && usage.total <= size, "{usage:?}");

        assert!(mount::unmount(&target).unwrap());
        assert!(!mount::unmount(&target).unwrap());
        assert!(!mount::unmount(&fixture.path("not there")).unwrap());
        assert_eq!(mountinfo::at(&target).unwrap(), None);
    }
}

#[test]
fn flags_of_mount_and_filesystem_are_set() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let attached = fixture.formatted("image", Filesystem::Ext4, 32 * MIB);
    let target = fixture.folder("with blank");
    let flags = ["noexec,nodev", "noatime", "errors=remount-ro", "sync", "_netdev"];
    fixture.mount(&attached.path, Filesystem::Ext4, &target, &flags);
    let found = mountinfo::at(&target).unwrap().unwrap();
    for option in ["noexec", "nodev", "noatime"] {
        assert!(found.options.iter().any(|found| found == option), "{option}: {found:?}");
    }
    for option in ["errors=remount-ro", "sync"] {
        assert!(found.super_options.iter().any(|found| found == option), "{option}: {found:?}");
    }
}

#[test]
fn a_read_only_mount_refuses_writes() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let attached = fixture.formatted("image", Filesystem::Ext4, 32 * MIB);
    let target = fixture.folder("target");
    fixture.will_mount(&target);
    let options = MountOptions { read_only: true, flags: vec![] };
    mount::mount(&attached.path, &target, Filesystem::Ext4, &options).unwrap();
    assert!(mountinfo::at(&target).unwrap().unwrap().read_only());
    let error = File::create(target.join("file")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn the_kernels_reason_is_in_the_error() {
    for fs in Filesystem::ALL {
        let (mkfs, size) = needs(fs);
        let Some(fixture) = fixture(&[mkfs]) else { continue };
        let attached = fixture.formatted("image", fs, size);
        let target = fixture.folder("target");
        fixture.will_mount(&target);
        let error = mount::mount(&attached.path, &target, fs, &flags(&["bogus"])).unwrap_err();
        let Error::Mount { reason, .. } = &error else { panic!("{error}") };
        assert!(reason.contains(fs.kernel_name()) && reason.contains("bogus"), "{error}");
        assert!(error.to_string().contains("bogus"), "{error}");
        assert_eq!(error.errno(), Some(Errno::INVAL.raw_os_error()));
        assert!(error.source().is_some());
        assert_eq!(mountinfo::at(&target).unwrap(), None);
    }
}

#[test]
fn what_holds_no_filesystem_is_not_mounted() {
    let Some(fixture) = fixture(&[]) else { return };
    let attached = fixture.attach(&fixture.image("image", 32 * MIB), &LoopOptions::default());
    let target = fixture.folder("target");
    fixture.will_mount(&target);
    let error = mount::mount(&attached.path, &target, Filesystem::Ext4, &flags(&[])).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(attached.path.to_str().unwrap()), "{text}");
    assert!(text.contains(target.to_str().unwrap()), "{text}");
}

#[test]
fn a_mount_in_use_is_busy() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (_, target) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    let file = File::create(target.join("file")).unwrap();
    let error = mount::unmount(&target).unwrap_err();
    assert!(matches!(error, Error::Busy { operation: "unmount", .. }), "{error}");
    drop(file);
    assert!(mount::unmount(&target).unwrap());
}

#[test]
fn a_symlink_is_no_mount_point() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let attached = fixture.formatted("image", Filesystem::Ext4, 32 * MIB);
    let (target, link) = (fixture.folder("target"), fixture.path("link"));
    symlink(&target, &link).unwrap();
    fixture.will_mount(&target);
    let error = mount::mount(&attached.path, &link, Filesystem::Ext4, &flags(&[])).unwrap_err();
    assert!(matches!(error, Error::Symlink { .. }), "{error}");
    assert_eq!(mountinfo::at(&target).unwrap(), None);

    fixture.mount(&attached.path, Filesystem::Ext4, &target, &[]);
    assert_eq!(mountinfo::at(&link).unwrap(), None, "the link itself is no mount point");
    assert!(!mount::unmount(&link).unwrap(), "and nothing is unmounted through it");
    assert!(mountinfo::at(&target).unwrap().is_some());
}

#[test]
fn folders_above_a_mount_point_may_be_symlinks_when_looked_up() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let attached = fixture.formatted("image", Filesystem::Ext4, 32 * MIB);
    fixture.folder("real");
    let target = fixture.folder("real/target");
    symlink(fixture.path("real"), fixture.path("link")).unwrap();
    fixture.mount(&attached.path, Filesystem::Ext4, &target, &[]);
    assert!(mountinfo::at(&fixture.path("link/target")).unwrap().is_some());
    assert_eq!(mountinfo::at(&fixture.path("nowhere/target")).unwrap(), None);
}

#[test]
fn a_clone_of_an_xfs_is_mounted_beside_it() {
    let Some(fixture) = fixture(&["mkfs.xfs"]) else { return };
    let (_, target) = fixture.mounted("image", Filesystem::Xfs, 300 * MIB);
    rustix::fs::syncfs(File::open(&target).unwrap()).unwrap();
    std::fs::copy(fixture.path("image"), fixture.path("copy")).unwrap();
    let copy = File::options().read(true).write(true).open(fixture.path("copy")).unwrap();
    let attached = fixture.attach(&copy, &LoopOptions::default());
    let beside = fixture.folder("beside");
    fixture.will_mount(&beside);
    mount::mount(&attached.path, &beside, Filesystem::Xfs, &flags(&[])).unwrap_err();
    fixture.mount(&attached.path, Filesystem::Xfs, &beside, &["nouuid"]);
}

#[test]
fn mounts_propagate_to_peers_of_their_mount_point() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let attached = fixture.formatted("image", Filesystem::Ext4, 32 * MIB);
    let (here, there) = (fixture.folder("here"), fixture.folder("there"));
    for path in [&here, &there] {
        fixture.will_mount(path);
    }
    mount::bind(&here, &here, false).unwrap();
    mount_change(&here, MountPropagationFlags::SHARED).unwrap();
    mount::bind(&here, &there, false).unwrap();

    let staged = fixture.folder("here/staged");
    fixture.will_mount(&there.join("staged"));
    fixture.mount(&attached.path, Filesystem::Ext4, &staged, &[]);
    assert!(mountinfo::at(&there.join("staged")).unwrap().is_some());
    let published = fixture.folder("here/published");
    fixture.will_mount(&published);
    mount::bind(&staged, &published, true).unwrap();
    let found = mountinfo::at(&there.join("published")).unwrap();
    assert!(found.is_some_and(|mount| mount.read_only()));
    assert!(mount::unmount(&published).unwrap());
    assert_eq!(mountinfo::at(&there.join("published")).unwrap(), None);
}

/// Between fork and exec, a child holds all files that this process has open.
#[test]
fn programs_that_are_being_started_do_not_make_a_mount_busy() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (attached, target) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for index in 0..3 {
            let (done, image) = (&done, fixture.path(&format!("image{index}")));
            File::create(&image).unwrap().set_len(MIB).unwrap();
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    format(Filesystem::Ext4, &image, &FormatOptions::default(), DEADLINE).unwrap();
                }
            });
        }
        let unmounted: Result<Vec<bool>, Error> = (0..100)
            .map(|_| {
                drop(File::create(target.join("file")).unwrap());
                let unmounted = mount::unmount(&target)?;
                let options = flags(&[]);
                mount::mount(&attached.path, &target, Filesystem::Ext4, &options)?;
                Ok(unmounted)
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        assert!(unmounted.unwrap().iter().all(|unmounted| *unmounted));
    });
}
