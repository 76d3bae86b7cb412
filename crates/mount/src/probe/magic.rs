//! Recognizes signatures by their magic bytes.

use super::{Disk, Signature, ext4, xfs};

/// Returns the signature found by magic bytes.
///
/// Two different signatures are traces of two owners: neither can be trusted.
pub(super) fn find(disk: &Disk) -> Option<Signature> {
    let head = disk.head();
    let whole = MAGIC
        .iter()
        .filter(|(offsets, magic, _)| offsets.iter().any(|offset| has(head, *offset, magic)))
        .map(|(.., signature)| signature.clone());
    let parsed = [ext4::parse(head).map(Signature::Ext4), xfs::parse(head).map(Signature::Xfs)];
    let mut found: Vec<_> = parsed.into_iter().flatten().chain(whole).collect();
    found.extend(raid_at_end(disk));
    // One signature may occur in two places.
    found.dedup();
    match found.len() {
        0 => partition_table(disk),
        1 => found.pop(),
        _ => Some(Signature::Other("several signatures at once")),
    }
}

/// Offsets, magic bytes and signature. Sorted by signature.
const MAGIC: &[(&[usize], &[u8], Signature)] = &[
    (&[0x1_0040], b"_BHRfS_M", Signature::Btrfs),
    (&SWAP, b"SWAPSPACE2", Signature::Swap),
    (&SWAP, b"SWAP-SPACE", Signature::Swap),
    (&[0], b"LUKS\xba\xbe", Signature::Luks),
    (&[0x4000, 0x8000, 0x1_0000], b"SKUL\xba\xbe", Signature::Luks),
    (&[0, 512, 1024, 1536], b"LABELONE", Signature::Other("an LVM physical volume")),
    (&[0, 4096], b"\xfc\x4e\x2b\xa9", Signature::Other("a RAID member")),
    (&[1024], b"\x10\x20\xf5\xf2", Signature::Other("f2fs")),
    (&[1024], b"\xe2\xe1\xf5\xe0", Signature::Other("erofs")),
    (&[0], b"hsqs", Signature::Other("squashfs")),
    (&[0x8000], b"JFS1", Signature::Other("jfs")),
    (&[0x8001], b"CD001", Signature::Other("iso9660")),
    (&[3], b"NTFS    ", Signature::Other("ntfs")),
    (&[3], b"EXFAT   ", Signature::Other("exfat")),
    (&[54], b"FAT16   ", Signature::Other("vfat")),
    (&[54], b"FAT12   ", Signature::Other("vfat")),
    (&[82], b"FAT32   ", Signature::Other("vfat")),
];

/// End of the first page, for all page sizes.
const SWAP: [usize; 5] = [4086, 8182, 16374, 32758, 65526];

/// RAID superblocks at the end: metadata 0.90 is 64 KiB before a multiple of that, 1.0 is 8 KiB
/// before the end.
fn raid_at_end(disk: &Disk) -> Option<Signature> {
    const MAGIC: &[u8] = b"\xfc\x4e\x2b\xa9";
    let (start, tail) = disk.tail();
    let size = start + tail.len() as u64;
    let places =
        [(size & !0xffff).checked_sub(0x1_0000), size.checked_sub(0x2000).map(|at| at & !0xfff)];
    let member = places.into_iter().flatten().any(|place| {
        let index = place.checked_sub(start).and_then(|index| usize::try_from(index).ok());
        index.is_some_and(|index| has(tail, index, MAGIC))
    });
    member.then_some(Signature::Other("a RAID member"))
}

/// A GPT at the second sector or its copy at the last, or an MBR. Checked last, since many
/// filesystems have a boot sector.
fn partition_table(disk: &Disk) -> Option<Signature> {
    const GPT: &[u8] = b"EFI PART";
    let (head, (_, tail)) = (disk.head(), disk.tail());
    let copy = [512, 4096]
        .iter()
        .any(|sector| tail.len().checked_sub(*sector).is_some_and(|index| has(tail, index, GPT)));
    let table = copy || has(head, 512, GPT) || has(head, 4096, GPT) || has(head, 510, b"\x55\xaa");
    table.then_some(Signature::PartitionTable)
}

fn has(bytes: &[u8], offset: usize, magic: &[u8]) -> bool {
    bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic))
}
