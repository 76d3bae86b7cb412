//! Parses ext4's superblock.

use super::field;

/// State of an ext4 filesystem, from its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ext4State {
    /// UUID of the filesystem.
    pub uuid: [u8; 16],
    /// Whether it was unmounted cleanly.
    pub clean: bool,
    /// Whether the kernel found errors that no check has repaired since.
    pub errors: bool,
    /// Whether the journal must be replayed, which the next mount does.
    pub needs_recovery: bool,
    /// Size of the filesystem in blocks.
    pub block_count: u64,
    /// Block size in bytes.
    pub block_size: u32,
    /// Minimum number of bytes by which the filesystem can grow.
    leftover: u64,
}

impl Ext4State {
    /// Size of the filesystem in bytes.
    pub fn size(&self) -> u64 {
        self.block_count.saturating_mul(self.block_size.into())
    }

    /// If the device has fewer bytes than this beyond [`size`](Self::size), the filesystem cannot
    /// grow: there is no space for another block, or for a group worth its tables.
    pub(crate) fn largest_leftover(&self) -> u64 {
        self.leftover
    }
}

const SUPERBLOCK: usize = 1024;
const MAGIC: u16 = 0xef53;
const STATE_CLEAN: u16 = 1;
const STATE_ERRORS: u16 = 2;
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_64BIT: u32 = 0x80;
/// ext4's tools add no group of fewer data blocks.
const SMALLEST_GROUP: u64 = 50;

pub(super) fn parse(head: &[u8]) -> Option<Ext4State> {
    let superblock = head.get(SUPERBLOCK..)?;
    let short = |offset| u16::from_le_bytes(field(superblock, offset));
    let word = |offset| u32::from_le_bytes(field(superblock, offset));
    let (log_block_size, incompat, state) = (word(0x18), word(0x60), short(0x3a));
    // The magic number has only two bytes: validate the other fields, too.
    if short(0x38) != MAGIC || log_block_size > 6 || incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
        return None;
    }
    let high = if incompat & INCOMPAT_64BIT != 0 { word(0x150) } else { 0 };
    let block_count = u64::from(high) << 32 | u64::from(word(0x4));
    let block_size = 1024 << log_block_size;
    (block_count > 0).then(|| Ext4State {
        uuid: field(superblock, 0x68),
        clean: state & STATE_CLEAN != 0,
        errors: state & STATE_ERRORS != 0 || word(0x194) != 0,
        needs_recovery: incompat & INCOMPAT_RECOVER != 0,
        block_count,
        block_size,
        leftover: leftover(superblock, block_count, block_size),
    })
}

fn leftover(superblock: &[u8], block_count: u64, block_size: u32) -> u64 {
    let word = |offset| u64::from(u32::from_le_bytes(field(superblock, offset)));
    let (first_block, group, inodes) = (word(0x14), word(0x20), word(0x28));
    let inode_size = u64::from(u16::from_le_bytes(field(superblock, 0x58)));
    let block_size = u64::from(block_size);
    let whole_groups = group > 0 && (block_count.saturating_sub(first_block)) % group == 0;
    if !whole_groups {
        return block_size;
    }
    let tables = (inodes * inode_size).div_ceil(block_size) + 2;
    (tables + SMALLEST_GROUP) * block_size
}
