//! Reports, allocates and frees space.

use std::{
    fs::File,
    ops::Range,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use rustix::{
    fs::{FallocateFlags, StatVfsMountFlags, fallocate, statvfs},
    io::Errno,
};

use crate::{Error, Result, error::path_of, extents, sys, unshare};

/// Space of a filesystem, in bytes and in inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Total bytes.
    pub total: u64,
    /// Bytes available to ordinary users.
    pub available: u64,
    /// Used bytes.
    pub used: u64,
    /// Total inodes.
    pub inodes_total: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Used inodes.
    pub inodes_used: u64,
    /// Whether the mount or its filesystem is read-only.
    pub read_only: bool,
}

/// Returns the space of the filesystem that holds `path`.
pub fn usage(path: &Path) -> Result<Usage> {
    let stat = statvfs(path).map_err(Error::io("ask for the space of", path))?;
    Ok(Usage {
        read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
        total: stat.f_blocks * stat.f_frsize,
        available: stat.f_bavail * stat.f_frsize,
        used: stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize,
        inodes_total: stat.f_files,
        inodes_free: stat.f_ffree,
        inodes_used: stat.f_files.saturating_sub(stat.f_ffree),
    })
}

/// Extends the file to at least `len` bytes. A `thick` file gets all its blocks now, a thin one
/// when it is written. Never truncates the file.
///
/// If there is no space, the error satisfies [`Error::is_full`]; some blocks may have been
/// allocated.
pub fn allocate(file: &File, len: u64, thick: bool) -> Result<()> {
    if thick && len > 0 {
        return missing(file, len)?.into_iter().try_for_each(|range| allocate_range(file, range));
    }
    let size = file.metadata().map_err(Error::file("look at", file))?.len();
    if size < len { file.set_len(len).map_err(Error::file("extend", file)) } else { Ok(()) }
}

/// Returns the ranges of the first `len` bytes that have no blocks. XFS requires free space for the
/// whole range of an allocation, even if most of it is allocated already.
fn missing(file: &File, len: u64) -> Result<Vec<Range<u64>>> {
    let whole = 0..len;
    if allocated(file)? == 0 {
        return Ok(vec![whole]);
    }
    let found = match extents::map_range(file, whole.clone(), false) {
        Err(Error::Unsupported { .. }) => return Ok(vec![whole]),
        found => found?,
    };
    let found: Vec<_> = found.iter().map(|it| it.logical..it.logical + it.length).collect();
    let mut missing = unshare::without(&[whole], &found);
    if size(file)? < len && missing.last().is_none_or(|last| last.end < len) {
        // The blocks extend beyond the end of the file: this range sets the size.
        missing.push(len - 1..len);
    }
    Ok(missing)
}

pub(crate) fn allocate_range(file: &File, range: Range<u64>) -> Result<()> {
    match fallocate(file, FallocateFlags::empty(), range.start, range.end - range.start) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) => Err(Error::Unsupported {
            operation: "preallocation",
            path: path_of(file),
            source: Errno::OPNOTSUPP.into(),
        }),
        Err(errno) => Err(Error::file("allocate blocks for", file)(errno)),
    }
}

/// Frees the blocks of these bytes of a file or block device. In a file they then read as zeros.
pub fn discard(file: &File, range: Range<u64>) -> Result<()> {
    let Some(length) = range.end.checked_sub(range.start).filter(|length| *length > 0) else {
        return Ok(());
    };
    let done = if is_block_device(file)? {
        sys::block::discard(file, range.start, length)
    } else {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, flags, range.start, length)
    };
    match done {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) => Err(Error::Unsupported {
            operation: "discarding",
            path: path_of(file),
            source: Errno::OPNOTSUPP.into(),
        }),
        Err(errno) => Err(Error::file("discard blocks of", file)(errno)),
    }
}

/// Returns the bytes that the file uses on disk.
///
/// Blocks shared with other files count for each file.
pub fn allocated(file: &File) -> Result<u64> {
    let metadata = file.metadata().map_err(Error::file("look at", file))?;
    Ok(metadata.blocks() * 512)
}

/// Returns the size of a block device.
pub fn block_device_size(device: &File) -> Result<u64> {
    sys::block::size(device).map_err(Error::file("ask for the size of", device))
}

/// Returns the size of a file or of a block device.
pub fn size(file: &File) -> Result<u64> {
    if is_block_device(file)? {
        return block_device_size(file);
    }
    Ok(file.metadata().map_err(Error::file("look at", file))?.len())
}

fn is_block_device(file: &File) -> Result<bool> {
    let metadata = file.metadata().map_err(Error::file("look at", file))?;
    Ok(metadata.file_type().is_block_device())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn thick_takes_blocks_and_thin_does_not() {
        let (thick, thin) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        allocate(&thick, 1 << 20, true).unwrap();
        allocate(&thin, 1 << 20, false).unwrap();
        assert_eq!((size(&thick).unwrap(), size(&thin).unwrap()), (1 << 20, 1 << 20));
        assert!(allocated(&thick).unwrap() >= 1 << 20);
        assert_eq!(allocated(&thin).unwrap(), 0);
    }

    #[test]
    fn a_file_is_never_shortened() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        for thick in [true, false] {
            allocate(&file, 4096, thick).unwrap();
            assert_eq!(size(&file).unwrap(), 8192);
        }
        allocate(&file, 0, true).unwrap();
    }

    #[test]
    fn discarded_bytes_are_zeros_and_take_no_space() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 1 << 20], 0).unwrap();
        discard(&file, 0..1 << 19).unwrap();
        discard(&file, 5..5).unwrap();
        let mut bytes = [9; 2];
        file.read_exact_at(&mut bytes, (1 << 19) - 1).unwrap();
        assert_eq!(bytes, [0, 1]);
        assert_eq!(size(&file).unwrap(), 1 << 20);
        assert!(allocated(&file).unwrap() <= 1 << 19);
    }

    #[test]
    fn more_than_there_is_is_told_from_other_errors() {
        let folder = tempfile::tempdir().unwrap();
        let total = usage(folder.path()).unwrap().total;
        let file = tempfile::tempfile_in(folder.path()).unwrap();
        let error = allocate(&file, total * 2, true).unwrap_err();
        assert!(error.is_full() || error.errno() == Some(libc::EFBIG), "{error:?}");
        assert!(error.errno().is_some() && error.kind().is_some());
    }

    #[test]
    fn usage_adds_up() {
        let usage = usage(Path::new("/")).unwrap();
        assert!(usage.used + usage.available <= usage.total);
        assert_eq!(usage.inodes_used + usage.inodes_free, usage.inodes_total);
    }
}
