use std::{fs::File, os::unix::fs::FileExt, path::Path};

use wharf_mount::{
    Error, Filesystem,
    check::{CheckOutcome, check},
    format::{FormatOptions, format, minimum_size},
    mount,
    probe::{Signature, probe, wipe},
    programs::Programs,
};

use crate::fixture::{DEADLINE, MIB, fixture, needs};

const UUID: &str = "1fb26ce5-bd34-4284-b219-a1c7a48dcc69";

// Fields of ext4's superblock. If it records errors, e2fsck does a full check.
const FREE_BLOCKS: usize = 0xc;
const STATE: usize = 0x3a;
const ERRORS_SEEN: [u8; 2] = [2, 0];

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn what_was_formatted_is_recognized_and_can_be_wiped() {
    for fs in Filesystem::ALL {
        let (mkfs, size) = needs(fs);
        let Some(fixture) = fixture(&[mkfs]) else { continue };
        let image = fixture.image("image", size);
        let options = FormatOptions {
            label: Some("wharf".into()),
            uuid: Some(UUID.into()),
            zeroed: true,
            ..FormatOptions::default()
        };
        format(fs, &fixture.path("image"), &options, DEADLINE).unwrap();
        let uuid = match probe(&image).unwrap() {
            Signature::Ext4(state) if fs == Filesystem::Ext4 => {
                assert!(state.clean && !state.errors && !state.needs_recovery, "{state:?}");
                assert_eq!(state.size(), size);
                state.uuid
            }
            Signature::Xfs(state) if fs == Filesystem::Xfs => {
                assert_eq!((state.size, state.in_progress), (size, false));
                state.uuid
            }
            other => panic!("{fs} is taken for {other}"),
        };
        assert_eq!(uuid[..4], [0x1f, 0xb2, 0x6c, 0xe5]);
        wipe(&image).unwrap();
        assert_eq!(probe(&image).unwrap(), Signature::None);
    }
}

#[test]
fn the_smallest_size_can_be_formatted_and_mounted() {
    for fs in Filesystem::ALL {
        let (mkfs, _) = needs(fs);
        let Some(fixture) = fixture(&[mkfs]) else { continue };
        let (_, target) = fixture.mounted("image", fs, minimum_size(fs));
        std::fs::write(target.join("file"), [1; 1000]).unwrap();
    }
}

#[test]
fn a_journal_that_a_crash_left_behind_is_replayed() {
    let Some(fixture) = fixture(&["mkfs.ext4", "e2fsck"]) else { return };
    let (attached, target) = fixture.mounted("image", Filesystem::Ext4, 32 * MIB);
    std::fs::write(target.join("file"), [1; 1000]).unwrap();
    rustix::fs::syncfs(File::open(&target).unwrap()).unwrap();
    // Copy the device as a crash would leave it.
    let mut crashed = fixture.image("crashed", 0);
    std::io::copy(&mut open(&attached.path), &mut crashed).unwrap();
    let state = |image: &File| match probe(image).unwrap() {
        Signature::Ext4(state) => state,
        other => panic!("{other}"),
    };
    assert!(state(&crashed).needs_recovery);
    let verdict = check(Filesystem::Ext4, &fixture.path("crashed"), None, DEADLINE).unwrap();
    assert!(matches!(verdict, CheckOutcome::Clean | CheckOutcome::Repaired), "{verdict:?}");
    assert!(!state(&crashed).needs_recovery && state(&crashed).clean);

    assert!(mount::unmount(&target).unwrap());
    assert_eq!(
        check(Filesystem::Ext4, &attached.path, None, DEADLINE).unwrap(),
        CheckOutcome::Clean
    );
}

#[test]
fn e2fsck_repairs_what_it_can_and_reports_the_rest() {
    let Some(fixture) = fixture(&["mkfs.ext4", "e2fsck"]) else { return };
    let image = fixture.image("image", 32 * MIB);
    let (path, fs) = (fixture.path("image"), Filesystem::Ext4);
    format(fs, &path, &FormatOptions::default(), DEADLINE).unwrap();
    assert_eq!(check(fs, &path, None, DEADLINE).unwrap(), CheckOutcome::Clean);
    // A wrong count of free blocks, which e2fsck corrects without asking.
    edit_superblock(&image, &[(FREE_BLOCKS, &[1, 0, 0, 0]), (STATE, &ERRORS_SEEN)]);
    let Signature::Ext4(state) = probe(&image).unwrap() else { panic!() };
    assert!(state.errors && !state.clean);
    assert_eq!(check(fs, &path, None, DEADLINE).unwrap(), CheckOutcome::Repaired);
    assert_eq!(check(fs, &path, None, DEADLINE).unwrap(), CheckOutcome::Clean);

    // Wipe the inodes of the root folder and its neighbors.
    edit_superblock(&image, &[(STATE, &ERRORS_SEEN)]);
    image.write_all_at(&[0x5a; 64 << 10], inode_table(&image)).unwrap();
    let verdict = check(fs, &path, None, DEADLINE).unwrap();
    let CheckOutcome::Damaged(report) = &verdict else { panic!("{verdict:?}") };
    assert!(report.contains("MANUALLY"), "{report}");

    wipe(&image).unwrap();
    let verdict = check(fs, &path, None, DEADLINE).unwrap();
    assert!(matches!(verdict, CheckOutcome::Damaged(_)), "{verdict:?}");
}

/// The last four bytes of the superblock are its checksum.
fn edit_superblock(image: &File, fields: &[(usize, &[u8])]) {
    let mut superblock = [0; 1024];
    image.read_exact_at(&mut superblock, 1024).unwrap();
    for (offset, bytes) in fields {
        superblock[*offset..][..bytes.len()].copy_from_slice(bytes);
    }
    let checksum = crc32c(&superblock[..1020]).to_le_bytes();
    superblock[1020..].copy_from_slice(&checksum);
    image.write_all_at(&superblock, 1024).unwrap();
}

fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}

/// Offset of the first group's inode table: the third field of the group's descriptor, in the block
/// after the superblock.
fn inode_table(image: &File) -> u64 {
    let Signature::Ext4(state) = probe(image).unwrap() else { panic!() };
    let block_size = u64::from(state.block_size);
    let descriptors = if block_size == 1024 { 2048 } else { block_size };
    let mut block = [0; 4];
    image.read_exact_at(&mut block, descriptors + 8).unwrap();
    u64::from(u32::from_le_bytes(block)) * block_size
}

#[test]
fn xfs_repair_looks_and_does_not_touch() {
    let Some(fixture) = fixture(&["mkfs.xfs", "xfs_repair"]) else { return };
    let attached = fixture.formatted("image", Filesystem::Xfs, 300 * MIB);
    let fs = Filesystem::Xfs;
    assert_eq!(check(fs, &attached.path, None, DEADLINE).unwrap(), CheckOutcome::Clean);
    // The header of the first group's free space.
    let device = open(&attached.path);
    device.write_all_at(&[0xff; 512], 512).unwrap();
    device.sync_all().unwrap();
    let verdict = check(fs, &attached.path, None, DEADLINE).unwrap();
    assert!(matches!(verdict, CheckOutcome::Damaged(_)), "{verdict:?}");
}

#[test]
fn a_missing_mkfs_names_its_package() {
    let Some(fixture) = fixture(&[]) else { return };
    fixture.image("image", 32 * MIB);
    let options = FormatOptions {
        programs: Programs::in_folders([fixture.folder("empty")]),
        ..FormatOptions::default()
    };
    for (fs, package) in [(Filesystem::Ext4, "e2fsprogs"), (Filesystem::Xfs, "xfsprogs")] {
        let error = format(fs, &fixture.path("image"), &options, DEADLINE).unwrap_err();
        assert!(matches!(error, Error::MissingProgram { .. }), "{error}");
        assert!(error.to_string().contains(package), "{error}");
    }
}

#[test]
fn what_mkfs_says_is_in_the_error() {
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    fixture.image("image", 4096);
    let options = FormatOptions::default();
    let error = format(Filesystem::Ext4, &fixture.path("image"), &options, DEADLINE).unwrap_err();
    let Error::Program { program: "mkfs.ext4", output, .. } = &error else { panic!("{error}") };
    assert!(!output.is_empty(), "{error}");
}

#[test]
fn a_thick_image_stays_thick() {
    use wharf_mount::space;
    let Some(fixture) = fixture(&["mkfs.ext4"]) else { return };
    let image = fixture.image("image", 32 * MIB);
    space::allocate(&image, 32 * MIB, true).unwrap();
    let options = FormatOptions { zeroed: true, ..FormatOptions::default() };
    format(Filesystem::Ext4, &fixture.path("image"), &options, DEADLINE).unwrap();
    assert!(space::allocated(&image).unwrap() >= 32 * MIB);
}
