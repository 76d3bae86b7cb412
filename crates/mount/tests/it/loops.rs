use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt},
};

use wharf_mount::{
    Error, Filesystem,
    loopdev::{self, HeldLoop, Loop, LoopOptions},
    mount, mountinfo, space,
};

use crate::fixture::{MIB, fixture};

#[test]
fn an_image_is_attached_found_and_detached() {
    let Some(fixture) = fixture(&[]) else { return };
    let image = fixture.image("image", MIB);
    let attached =
        fixture.attach(&image, &LoopOptions { direct_io: true, ..LoopOptions::default() });
    let metadata = image.metadata().unwrap();
    assert_eq!((attached.device, attached.inode), (metadata.dev(), metadata.ino()));
    assert!(!attached.read_only && !attached.clearing);

    let found = loopdev::find(metadata.dev(), metadata.ino()).unwrap();
    assert_eq!(found, std::slice::from_ref(&attached));
    let listed = loopdev::list().unwrap();
    let status = listed.iter().find(|status| status.loopdev == attached).unwrap();
    assert_eq!(status.loopdev.backing, fixture.path("image").canonicalize().unwrap());
    assert_eq!((status.size_limit, status.offset), (0, 0));
    let device = File::open(&attached.path).unwrap();
    assert_eq!(space::block_device_size(&device).unwrap(), MIB);
    assert_eq!(loopdev::device_number(&attached.path).unwrap(), device.metadata().unwrap().rdev());
    drop(device);

    loopdev::detach(&attached).unwrap();
    assert_eq!(loopdev::find(metadata.dev(), metadata.ino()).unwrap(), []);
    loopdev::detach(&attached).unwrap();
}

#[test]
fn a_number_that_was_used_again_is_not_detached() {
    let Some(fixture) = fixture(&[]) else { return };
    let (image, other) = (fixture.image("image", MIB), fixture.image("other", MIB));
    let attached = fixture.attach(&image, &LoopOptions::default());
    let mut stale = fixture.attach(&other, &LoopOptions::default());
    // Pretend that the image of `other` is attached under the number of `image`.
    stale.path.clone_from(&attached.path);
    stale.number = attached.number;
    loopdev::detach(&stale).unwrap();
    assert_eq!(loopdev::find(attached.device, attached.inode).unwrap(), [attached]);
}

#[test]
fn a_read_only_device_refuses_writes() {
    let Some(fixture) = fixture(&[]) else { return };
    fixture.image("image", MIB);
    let image = File::open(fixture.path("image")).unwrap();
    let attached =
        fixture.attach(&image, &LoopOptions { read_only: true, ..LoopOptions::default() });
    assert!(attached.read_only);
    let refused = OpenOptions::new().write(true).open(&attached.path);
    let refused = refused.and_then(|mut device| device.write_all(&[1; 512]));
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn a_writable_image_can_be_attached_read_only() {
    let Some(fixture) = fixture(&[]) else { return };
    let image = fixture.image("image", MIB);
    let attached =
        fixture.attach(&image, &LoopOptions { read_only: true, ..LoopOptions::default() });
    assert!(attached.read_only);
}

#[test]
fn direct_io_is_had_or_reported_as_not_had() {
    let Some(fixture) = fixture(&[]) else { return };
    let image = fixture.image("image", MIB);
    let options = LoopOptions { direct_io: true, block_size: Some(4096), ..LoopOptions::default() };
    let attached = fixture.attach(&image, &options);
    let sysfs = format!("/sys/block/loop{}/loop/dio", attached.number);
    let dio = std::fs::read_to_string(sysfs).unwrap();
    assert_eq!(attached.direct_io, dio.trim() == "1");

    let buffered = fixture.attach(&fixture.image("other", MIB), &LoopOptions::default());
    assert!(!buffered.direct_io);
    let device = OpenOptions::new().write(true).open(&buffered.path).unwrap();
    device.write_all_at(&[7; 4096], 0).unwrap();
    device.sync_all().unwrap();
    let mut found = [0; 1];
    File::open(fixture.path("other")).unwrap().read_exact_at(&mut found, 4095).unwrap();
    assert_eq!(found, [7]);
}

#[test]
fn a_device_takes_the_new_size_of_its_image() {
    let Some(fixture) = fixture(&[]) else { return };
    let image = fixture.image("image", MIB);
    let attached = fixture.attach(&image, &LoopOptions::default());
    space::allocate(&image, 3 * MIB, true).unwrap();
    hold(&attached).set_capacity().unwrap();
    let device = File::open(&attached.path).unwrap();
    assert_eq!(space::block_device_size(&device).unwrap(), 3 * MIB);
}

#[test]
fn to_detach_waits_for_those_who_have_it_open() {
    let Some(fixture) = fixture(&[]) else { return };
    let attached = fixture.attach(&fixture.image("image", MIB), &LoopOptions::default());
    let user = File::open(&attached.path).unwrap();
    std::thread::scope(|scope| {
        let detaching = scope.spawn(|| loopdev::detach(&attached));
        // Close it after the kernel has marked the device for detaching.
        let marked = || {
            let found = loopdev::find(attached.device, attached.inode).unwrap();
            found.iter().any(|found| found.clearing)
        };
        while !marked() {
            std::thread::yield_now();
        }
        drop(user);
        detaching.join().unwrap().unwrap();
    });
    assert_eq!(loopdev::find(attached.device, attached.inode).unwrap(), []);
}

#[test]
fn a_device_in_use_is_said_to_be() {
    let Some(fixture) = fixture(&[]) else { return };
    let attached = fixture.attach(&fixture.image("image", MIB), &LoopOptions::default());
    let user = File::open(&attached.path).unwrap();
    let error = loopdev::detach(&attached).unwrap_err();
    assert!(matches!(error, Error::Busy { operation: "detach", .. }), "{error}");
    drop(user);
    loopdev::detach(&attached).unwrap();
}

fn hold(attached: &Loop) -> HeldLoop {
    let held = HeldLoop::open(attached.number, attached.identity(), None).unwrap();
    held.expect("its image is attached")
}

#[test]
fn a_detach_that_waits_for_others_can_be_taken_back() {
    let Some(fixture) = fixture(&[]) else { return };
    let attached = fixture.attach(&fixture.image("image", MIB), &LoopOptions::default());
    let user = File::open(&attached.path).unwrap();
    loopdev::detach(&attached).unwrap_err();
    let mut held = hold(&attached);
    assert!(held.clearing);
    held.cancel_detach().unwrap();
    assert!(!held.clearing);
    drop((held, user));
    assert_eq!(loopdev::find(attached.device, attached.inode).unwrap(), [attached]);
}

#[test]
fn a_held_device_keeps_its_image_and_no_other_image_is_taken_for_it() {
    let Some(fixture) = fixture(&[]) else { return };
    let attached = fixture.attach(&fixture.image("image", MIB), &LoopOptions::default());
    let (device, inode) = attached.identity();
    assert!(HeldLoop::open(attached.number, (device, inode + 1), None).unwrap().is_none());
    let held = hold(&attached);
    loopdev::detach(&attached).unwrap_err();
    assert_eq!(hold(&attached).number, held.number);
    drop(held);
    loopdev::detach(&attached).unwrap();
    assert!(HeldLoop::open(attached.number, (device, inode), None).unwrap().is_none());
}

#[test]
fn a_mounted_device_is_claimed_and_its_mount_points_show_it() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let (attached, target) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    let held = hold(&attached);
    let number = held.device_number().unwrap();
    assert!(held.is_claimed().unwrap());
    assert!(mountinfo::root_at(&target).unwrap().unwrap().shows(number));
    let node = fixture.path("node");
    File::create(&node).unwrap();
    assert_eq!(mountinfo::root_at(&node).unwrap(), None);
    mount::bind(&attached.path, &node, false).unwrap();
    assert!(mountinfo::root_at(&node).unwrap().unwrap().shows(number));
    mount::unmount(&node).unwrap();
    mount::unmount(&target).unwrap();
    assert!(!held.is_claimed().unwrap());
    assert_eq!(mountinfo::root_at(&target).unwrap(), None);
    assert_eq!(mountinfo::root_at(&fixture.path("nowhere")).unwrap(), None);
}

#[test]
fn devices_are_attached_in_parallel() {
    let Some(fixture) = fixture(&[]) else { return };
    let images: Vec<_> = (0..12).map(|n| fixture.image(&format!("image{n}"), MIB)).collect();
    let attached: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = images
            .iter()
            .map(|image| scope.spawn(|| loopdev::attach(image, &LoopOptions::default())))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    attached.iter().flatten().for_each(|attached| fixture.adopt(attached));
    for (attached, image) in attached.into_iter().zip(&images) {
        assert_eq!(attached.unwrap().inode, image.metadata().unwrap().ino());
    }
}

fn discard_limit(attached: &Loop) -> u64 {
    let file = format!("/sys/block/loop{}/queue/discard_max_bytes", attached.number);
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

#[test]
fn discards_are_refused_where_asked_for_and_never_by_a_device_that_is_used_again() {
    let Some(fixture) = fixture(&[]) else { return };
    let image = fixture.image("image", MIB);
    for _ in 0..3 {
        let refusing = LoopOptions { refuse_discards: true, ..LoopOptions::default() };
        let attached = fixture.attach(&image, &refusing);
        assert_eq!(discard_limit(&attached), 0);
        let device = OpenOptions::new().write(true).open(&attached.path).unwrap();
        space::discard(&device, 0..MIB).unwrap_err();
        drop(device);
        loopdev::detach(&attached).unwrap();
        let attached = fixture.attach(&image, &LoopOptions::default());
        assert!(discard_limit(&attached) > 0, "{attached:?}");
        loopdev::detach(&attached).unwrap();
    }
}

#[test]
fn a_device_that_still_refuses_discards_is_not_taken() {
    let Some(fixture) = fixture(&[]) else { return };
    let image = fixture.image("image", MIB);
    let refusing = LoopOptions { refuse_discards: true, ..LoopOptions::default() };
    let marked = fixture.attach(&image, &refusing);
    // Let the kernel detach the device on the last close, as after a detach that timed out.
    let user = File::open(&marked.path).unwrap();
    loopdev::detach(&marked).unwrap_err();
    drop(user);
    let attached = fixture.attach(&image, &LoopOptions::default());
    assert!(discard_limit(&attached) > 0, "{attached:?} after {marked:?}");
}
