//! Detects the content of a device, so that no data is formatted over.
//!
//! A device is empty only if all places of signatures are zero: its first and last 128 KiB, and the
//! place of btrfs's first copy. Unknown data counts as data.

use std::{fmt, fs::File, os::unix::fs::FileExt};

use crate::{Error, Result, error::path_of, space};

mod ext4;
mod magic;
mod xfs;

pub use ext4::Ext4State;
pub use xfs::XfsState;

/// Number of bytes read at each end.
const END: u64 = 128 << 10;
/// Offset and length of btrfs's first copy of its superblock.
const BTRFS_COPY: (u64, u64) = (64 << 20, 4096);

/// Detected content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signature {
    /// Only zeros.
    None,
    /// ext4, or ext2 or ext3, which the kernel mounts as ext4.
    Ext4(Ext4State),
    /// XFS.
    Xfs(XfsState),
    /// btrfs.
    Btrfs,
    /// Swap space.
    Swap,
    /// An encrypted device.
    Luks,
    /// A GPT or an MBR.
    PartitionTable,
    /// Another known signature.
    Other(&'static str),
    /// Data without a known signature.
    Unknown {
        /// Offset of the first byte that is not zero.
        offset: u64,
    },
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("nothing"),
            Self::Ext4(_) => f.write_str("ext4"),
            Self::Xfs(_) => f.write_str("xfs"),
            Self::Btrfs => f.write_str("btrfs"),
            Self::Swap => f.write_str("swap"),
            Self::Luks => f.write_str("LUKS"),
            Self::PartitionTable => f.write_str("a partition table"),
            Self::Other(name) => f.write_str(name),
            Self::Unknown { offset } => write!(f, "unknown data at byte {offset}"),
        }
    }
}

/// Detects the content of a device or image; reads at most 260 KiB.
pub fn probe(file: &File) -> Result<Signature> {
    let areas = areas(space::size(file)?);
    let mut disk = Disk { parts: Vec::new() };
    for (offset, length) in areas {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, offset).map_err(Error::file("read", file))?;
        disk.parts.push((offset, bytes));
    }
    let found = magic::find(&disk).or_else(|| disk.first_data());
    let found = found.unwrap_or(Signature::None);
    tracing::debug!(file = ?path_of(file), %found, "probed");
    Ok(found)
}

/// Zeroes the areas that [`probe`] reads, and flushes them.
pub fn wipe(file: &File) -> Result<()> {
    static ZEROS: [u8; END as usize] = [0; END as usize];
    for (offset, length) in areas(space::size(file)?) {
        let zeros = &ZEROS[..usize::try_from(length).unwrap_or_default().min(ZEROS.len())];
        file.write_all_at(zeros, offset).map_err(Error::file("wipe", file))?;
    }
    file.sync_data().map_err(Error::file("flush", file))
}

/// The areas to read on a device of this size, as offsets and lengths; they may overlap on a small
/// device.
fn areas(size: u64) -> Vec<(u64, u64)> {
    let mut areas = vec![(0, size.min(END))];
    if size >= BTRFS_COPY.0 + BTRFS_COPY.1 {
        areas.push(BTRFS_COPY);
    }
    if size > END {
        areas.push((size - END, END));
    }
    areas
}

/// The areas that were read; the last one is the end of the device.
struct Disk {
    parts: Vec<(u64, Vec<u8>)>,
}

impl Disk {
    fn head(&self) -> &[u8] {
        self.parts.first().map_or(&[], |(_, bytes)| bytes)
    }

    /// The last area and its offset.
    fn tail(&self) -> (u64, &[u8]) {
        self.parts.last().map_or((0, &[]), |(offset, bytes)| (*offset, bytes))
    }

    fn first_data(&self) -> Option<Signature> {
        self.parts.iter().find_map(|(start, bytes)| {
            let index = bytes.iter().position(|byte| *byte != 0)?;
            Some(Signature::Unknown { offset: start + index as u64 })
        })
    }
}

/// Reads a field of an on-disk structure; zeros if the bytes end before it.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes.get(offset..).and_then(|rest| rest.first_chunk().copied()).unwrap_or([0; N])
}

#[cfg(test)]
mod tests;
