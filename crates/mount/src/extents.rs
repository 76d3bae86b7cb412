//! Where on disk a file's bytes are (FIEMAP).

use std::fs::File;
use std::ops::Range;

use rustix::io::Errno;

use crate::error::path_of;
use crate::sys::fiemap;
use crate::{Error, Result};

/// A stretch of a file that is in one piece on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file, in bytes.
    pub logical: u64,
    /// Where it begins on the device that the filesystem is on, in bytes.
    pub physical: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
    /// Other files have the same blocks.
    pub shared: bool,
}

/// How many extents the file has.
pub fn count(file: &File) -> Result<u32> {
    fiemap::count(file, false).map_err(|errno| refused(file, errno))
}

/// All extents of the file, in order of the file; with `sync` what is not on disk yet is written first.
///
/// Holes are what lies between them.
pub fn map(file: &File, sync: bool) -> Result<Vec<Extent>> {
    map_range(file, 0..u64::MAX, sync)
}

/// The extents of these bytes of the file; the first and the last one may reach beyond them.
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
