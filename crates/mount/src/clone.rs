//! Copies image files: instantly by sharing blocks, or byte by byte with holes preserved.

use std::{fs::File, io::Write, os::unix::fs::FileExt, path::Path};

use rustix::{
    fs::{
        CWD, IFlags, Mode, OFlags, ioctl_ficlone, ioctl_getflags, ioctl_setflags, openat, statfs,
    },
    io::Errno,
};

use crate::{Error, Result, error::path_of, sys};

/// Bytes copied between two calls of `keep_going`.
const STEP: u64 = 8 << 20;
/// Size of the copy buffer.
const BUFFER: u64 = 1 << 20;

/// Makes `dst` share all present blocks of `src` until one of the two is written to.
///
/// Both must be on one filesystem. Fails with [`Error::Unsupported`] if that cannot share blocks.
/// Takes about 25 us per extent, during which writers of `src` wait. Not atomic over a crash: `dst`
/// must not have its final name until the call returns.
pub fn reflink(src: &File, dst: &File) -> Result<()> {
    match ioctl_ficlone(dst, src) {
        Ok(()) => Ok(()),
        Err(errno @ (Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY)) => {
            let operation = "sharing blocks between files";
            Err(Error::Unsupported { operation, path: path_of(dst), source: errno.into() })
        }
        Err(errno) => Err(Error::file("clone into", dst)(errno)),
    }
}

/// Tries whether files in the folder `dir` can share blocks. Leaves no files behind. Fails on a
/// full filesystem: there use [`shares_blocks`], which needs no space.
pub fn reflink_supported(dir: &Path) -> Result<bool> {
    let nameless = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        openat(CWD, dir, flags, Mode::RUSR | Mode::WUSR).map(File::from)
    };
    let (mut src, dst) = match nameless().and_then(|src| Ok((src, nameless()?))) {
        Ok(files) => files,
        // A filesystem without O_TMPFILE cannot share blocks either.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => return Ok(false),
        Err(errno) => return Err(Error::io("make a file in", dir)(errno)),
    };
    src.write_all(&[1; 4096]).map_err(Error::io("write to a file in", dir))?;
    match reflink(&src, &dst) {
        Ok(()) => Ok(true),
        Err(Error::Unsupported { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether `file`, open for reading and writing, can share blocks with other files. Needs no space:
/// it clones the empty range at the end of the file onto itself.
pub fn shares_blocks(file: &File) -> Result<bool> {
    match sys::clone::clone_range(file, file, length_of(file)?, 0) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY) => Ok(false),
        Err(errno) => Err(Error::file("clone into", file)(errno)),
    }
}

/// Whether the filesystem of `path` writes every overwritten block to a new place, as btrfs does.
/// There, allocated blocks do not protect a writer from a full disk.
pub fn is_copy_on_write(path: &Path) -> Result<bool> {
    const BTRFS: i64 = 0x9123_683e;
    let found = statfs(path).map_err(Error::io("look at the filesystem of", path))?;
    Ok(found.f_type == BTRFS)
}

/// Makes the filesystem overwrite blocks of `file`, which must be empty, in place. Such a file
/// cannot share blocks.
pub fn overwrite_in_place(file: &File) -> Result<()> {
    let flags = ioctl_getflags(file).map_err(Error::file("ask for the flags of", file))?;
    ioctl_setflags(file, flags | IFlags::NOCOW).map_err(Error::file("set the flags of", file))
}

/// Copies the data of `src` to `dst`, which should be empty, and preserves holes. Returns the
/// number of data bytes copied.
///
/// Every few MiB `keep_going` is called with this number; if it returns false the copy ends with
/// [`Error::Stopped`]. If the source changes its size meanwhile, the copy fails with
/// [`Error::Resized`]. The data is not flushed.
pub fn copy_sparse(src: &File, dst: &File, mut keep_going: impl FnMut(u64) -> bool) -> Result<u64> {
    let size = length_of(src)?;
    dst.set_len(size).map_err(Error::file("resize", dst))?;
    let mut copied = 0;
    let mut position = 0;
    while let Some((start, end)) = next_data(src, position, size)? {
        position = start;
        while position < end {
            if !keep_going(copied) {
                return Err(Error::Stopped { path: path_of(src), copied });
            }
            let length = copy_step(src, dst, position, (end - position).min(STEP))?;
            if length == 0 {
                // The source was truncated here.
                return Err(resized(src, size)?);
            }
            position += length;
            copied += length;
        }
    }
    // The tail of a truncated source looks like a hole, so compare the size again.
    let now = length_of(src)?;
    if now == size { Ok(copied) } else { Err(resized(src, size)?) }
}

fn length_of(file: &File) -> Result<u64> {
    Ok(file.metadata().map_err(Error::file("look at", file))?.len())
}

fn resized(src: &File, was: u64) -> Result<Error> {
    Ok(Error::Resized { path: path_of(src), was, is: length_of(src)? })
}

/// Returns the next range of data at or after `from`.
fn next_data(src: &File, from: u64, size: u64) -> Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    if from >= size {
        return Ok(None);
    }
    match seek(src, SeekFrom::Data(from)) {
        Ok(start) if start >= size => Ok(None),
        Ok(start) => {
            let end = seek(src, SeekFrom::Hole(start)).map_err(Error::file("seek in", src))?;
            Ok(Some((start, end.min(size))))
        }
        // No data up to the end of the file.
        Err(Errno::NXIO) => Ok(None),
        // The filesystem does not report holes: treat the rest as data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some((from, size))),
        Err(errno) => Err(Error::file("seek in", src)(errno)),
    }
}

/// Copies through memory: the kernel's own copy would share blocks where it can, and this copy must
/// not.
fn copy_step(src: &File, dst: &File, position: u64, length: u64) -> Result<u64> {
    let mut buffer = vec![0; usize::try_from(length.min(BUFFER)).unwrap_or(0)];
    let mut done = 0;
    while done < length {
        let wanted = usize::try_from((length - done).min(BUFFER)).unwrap_or(0);
        let read = src.read_at(&mut buffer[..wanted], position + done);
        let read = read.map_err(Error::file("read", src))?;
        if read == 0 {
            break;
        }
        let written = dst.write_all_at(&buffer[..read], position + done);
        written.map_err(Error::file("copy to", dst))?;
        done += read as u64;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn sparse() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * MIB).unwrap();
        file.write_all_at(&[7; 4096], 10 * MIB).unwrap();
        file.write_all_at(&[8; 4096], 40 * MIB).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn holes_stay_holes() {
        let (src, dst) = (sparse(), tempfile::tempfile().unwrap());
        let copied = copy_sparse(&src, &dst, |_| true).unwrap();
        assert!((8192..MIB).contains(&copied), "{copied}");
        let metadata = dst.metadata().unwrap();
        assert_eq!(metadata.len(), 64 * MIB);
        assert!(metadata.blocks() * 512 < MIB, "{}", metadata.blocks());
        for (offset, byte) in [(0, 0), (10 * MIB, 7), (40 * MIB, 8), (63 * MIB, 0)] {
            let mut found = [255];
            dst.read_exact_at(&mut found, offset).unwrap();
            assert_eq!(found, [byte], "at {offset}");
        }
    }

    #[test]
    fn a_copy_ends_when_its_caller_says_so() {
        let (src, dst) = (sparse(), tempfile::tempfile().unwrap());
        let error = copy_sparse(&src, &dst, |copied| copied == 0).unwrap_err();
        let Error::Stopped { copied, .. } = error else { panic!("{error}") };
        assert!(copied >= 4096, "{copied}");
    }

    #[test]
    fn a_source_that_changes_its_size_is_not_copied() {
        for size in [0, 20 * MIB, 40 * MIB, 65 * MIB] {
            let (src, dst) = (sparse(), tempfile::tempfile().unwrap());
            let resize = |_| src.set_len(size).is_ok();
            let error = copy_sparse(&src, &dst, resize).unwrap_err();
            let Error::Resized { was, is, .. } = error else { panic!("{error}") };
            assert_eq!((was, is), (64 * MIB, size));
        }
    }

    #[test]
    fn through_memory_copies_the_stretch_and_no_more() {
        let (src, dst) = (sparse(), tempfile::tempfile().unwrap());
        assert_eq!(copy_step(&src, &dst, 10 * MIB, 4096).unwrap(), 4096);
        assert_eq!(dst.metadata().unwrap().len(), 10 * MIB + 4096);
    }

    #[test]
    fn an_empty_file_is_copied() {
        let (src, dst) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        assert_eq!(copy_sparse(&src, &dst, |_| true).unwrap(), 0);
    }
}
