//! Parses XFS's superblock.

use super::field;

/// State of an XFS filesystem, from its superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XfsState {
    /// UUID of the filesystem.
    pub uuid: [u8; 16],
    /// Size of the filesystem in bytes.
    pub size: u64,
    /// Block size in bytes.
    pub block_size: u32,
    /// Whether mkfs.xfs was interrupted.
    pub in_progress: bool,
}

pub(super) fn parse(head: &[u8]) -> Option<XfsState> {
    let block_size = u32::from_be_bytes(field(head, 4));
    let blocks = u64::from_be_bytes(field(head, 8));
    (head.starts_with(b"XFSB") && block_size.is_power_of_two()).then(|| XfsState {
        uuid: field(head, 32),
        size: blocks.saturating_mul(block_size.into()),
        block_size,
        in_progress: field::<1>(head, 126) != [0],
    })
}
