//! The extents of a file (FIEMAP).

use std::{fs::File, ops::Range};

use rustix::io::Errno;

use crate::{Error, Result, error::path_of, sys::fiemap};

/// A range of a file that is contiguous on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, in bytes.
    pub logical: u64,
    /// Offset on the filesystem's device, in bytes.
    pub physical: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
    /// Whether other files share the blocks.
    pub shared: bool,
}

/// Returns the number of extents of the file.
pub fn count(file: &File) -> Result<u32> {
    fiemap::count(file, false).map_err(|errno| refused(file, errno))
}

/// Returns all extents of the file, in file order. With `sync`, dirty data is written first.
///
/// Holes have no extent.
pub fn map(file: &File, sync: bool) -> Result<Vec<Extent>> {
    map_range(file, 0..u64::MAX, sync)
}

/// Returns the extents that overlap these bytes of the file; the first and the last may reach
/// beyond.
pub fn map_range(file: &File, range: Range<u64>, sync: bool) -> Result<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut start = range.start;
    loop {
        let mut last = true;
        let batch = fiemap::extents(file, start, sync).map_err(|errno| refused(file, errno))?;
        for raw in batch {
            start = raw.logical.saturating_add(raw.length);
            last = raw.flags & fiemap::LAST != 0 || raw.length == 0 || start >= range.end;
            if raw.logical >= range.end {
                return Ok(extents);
            }
            extents.push(Extent {
                logical: raw.logical,
                physical: raw.physical,
                length: raw.length,
                unwritten: raw.flags & fiemap::UNWRITTEN != 0,
                shared: raw.flags & fiemap::SHARED != 0,
            });
        }
        if last {
            return Ok(extents);
        }
    }
}

fn refused(file: &File, errno: Errno) -> Error {
    match errno {
        Errno::OPNOTSUPP | Errno::NOTTY => Error::Unsupported {
            operation: "maps of extents",
            path: path_of(file),
            source: errno.into(),
        },
        errno => Error::file("map the extents of", file)(errno),
    }
}
