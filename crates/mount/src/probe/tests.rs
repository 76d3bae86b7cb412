use std::{fs::File, os::unix::fs::FileExt};

use super::*;

const SIZE: u64 = 80 << 20;

fn disk(writes: &[(u64, &[u8])]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE).unwrap();
    for (offset, bytes) in writes {
        file.write_all_at(bytes, *offset).unwrap();
    }
    file
}

#[test]
fn each_signature_is_known() {
    const RAID: &[u8] = b"\xfc\x4e\x2b\xa9";
    let table: &[(u64, &[u8], Signature)] = &[
        (4086, b"SWAPSPACE2", Signature::Swap),
        (65526, b"SWAPSPACE2", Signature::Swap),
        (0, b"LUKS\xba\xbe\x00\x01", Signature::Luks),
        (0x4000, b"SKUL\xba\xbe\x00\x02", Signature::Luks),
        (0x1_0040, b"_BHRfS_M", Signature::Btrfs),
        (512, b"EFI PART", Signature::PartitionTable),
        (4096, b"EFI PART", Signature::PartitionTable),
        (SIZE - 512, b"EFI PART", Signature::PartitionTable),
        (SIZE - 4096, b"EFI PART", Signature::PartitionTable),
        (510, b"\x55\xaa", Signature::PartitionTable),
        (512, b"LABELONE", Signature::Other("an LVM physical volume")),
        (4096, RAID, Signature::Other("a RAID member")),
        (SIZE - 0x2000, RAID, Signature::Other("a RAID member")),
        (SIZE - 0x1_0000, RAID, Signature::Other("a RAID member")),
        (82, b"FAT32   ", Signature::Other("vfat")),
        (3, b"NTFS    ", Signature::Other("ntfs")),
        (0x8001, b"CD001", Signature::Other("iso9660")),
        (7, b"some text", Signature::Unknown { offset: 7 }),
        (END - 1, b"x", Signature::Unknown { offset: END - 1 }),
        ((64 << 20) + 64, b"_BHRfS_M", Signature::Unknown { offset: (64 << 20) + 64 }),
        (SIZE - 1, b"x", Signature::Unknown { offset: SIZE - 1 }),
        // A magic number without the rest of its structure.
        (1024 + 0x38, b"\x53\xef", Signature::Unknown { offset: 1024 + 0x38 }),
        (0, b"XFSB", Signature::Unknown { offset: 0 }),
    ];
    for (offset, bytes, expected) in table {
        let file = disk(&[(*offset, bytes)]);
        assert_eq!(probe(&file).unwrap(), *expected, "{bytes:?} at {offset}");
        wipe(&file).unwrap();
        assert_eq!(probe(&file).unwrap(), Signature::None, "{bytes:?} at {offset}, wiped");
    }
}

#[test]
fn a_boot_sector_does_not_hide_a_filesystem() {
    let file = disk(&[(510, b"\x55\xaa"), (82, b"FAT32   ")]);
    assert_eq!(probe(&file).unwrap(), Signature::Other("vfat"));
}

#[test]
fn two_owners_are_no_owner() {
    let file = disk(&[(0, b"LUKS\xba\xbe"), (0x1_0040, b"_BHRfS_M")]);
    assert_eq!(probe(&file).unwrap(), Signature::Other("several signatures at once"));
    let file = disk(&[(0, b"LUKS\xba\xbe"), (0x4000, b"SKUL\xba\xbe")]);
    assert_eq!(probe(&file).unwrap(), Signature::Luks, "one owner in two places");
}

#[test]
fn devices_of_any_size_are_looked_at_whole() {
    for size in [0, 1, 511, 4096, END - 1, END, END + 1, 2 * END, (64 << 20) + 4096] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        assert_eq!(probe(&file).unwrap(), Signature::None, "{size} zeros");
        let Some(last) = size.checked_sub(1) else { continue };
        file.write_all_at(b"x", last).unwrap();
        assert_eq!(probe(&file).unwrap(), Signature::Unknown { offset: last }, "{size} bytes");
        wipe(&file).unwrap();
        assert_eq!(probe(&file).unwrap(), Signature::None, "{size} bytes, wiped");
        assert_eq!(file.metadata().unwrap().len(), size);
    }
}
