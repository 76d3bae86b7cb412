//! ext4's superblock.

use super::field;

/// What ext4's superblock says of its filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ext4State {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// It was unmounted in order.
    pub clean: bool,
    /// The kernel has met errors in it that no check has looked at since.
    pub errors: bool,
    /// Its journal has to be replayed, as the next mount will.
    pub needs_recovery: bool,
    /// Its size in blocks.
    pub block_count: u64,
    /// The size of a block in bytes.
    pub block_size: u32,
    /// Bytes that have to be left for the filesystem to grow into.
    leftover: u64,
}

impl Ext4State {
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.block_count.saturating_mul(self.block_size.into())
    }

    /// A device with fewer bytes than this beyond [`size`](Self::size) is filled: no block, or no group
    /// of blocks that is worth its tables, can be added.
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
/// ext4's tools do not begin a group for fewer data blocks.
const SMALLEST_GROUP: u64 = 50;

pub(super) fn parse(head: &[u8]) -> Option<Ext4State> {
    let superblock = head.get(SUPERBLOCK..)?;
    let short = |offset| u16::from_le_bytes(field(superblock, offset));
    let word = |offset| u32::from_le_bytes(field(superblock, offset));
    let (log_block_size, incompat, state) = (word(0x18), word(0x60), short(0x3a));
    // Two bytes of magic are few: the rest has to make sense too.
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
