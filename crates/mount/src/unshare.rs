//! Finds blocks that two files share, and replaces them in one of the files.

use std::{fs::File, num::NonZeroU64, ops::Range, os::unix::fs::FileExt};

use rustix::fs::{Advice, fadvise};

use crate::{Error, Result, extents, space, sys};

/// Size of the copy buffer.
const BUFFER: u64 = 1 << 20;

/// Returns the ranges of `file` within `range` whose blocks other files share; sorted, and merged
/// where they touch.
///
/// Writes dirty data first.
pub fn shared(file: &File, range: Range<u64>) -> Result<Vec<Range<u64>>> {
    mapped(file, range, true)
}

/// Returns the ranges of `file` within `range` whose blocks no other file shares, written or not.
pub fn unshared(file: &File, range: Range<u64>) -> Result<Vec<Range<u64>>> {
    mapped(file, range, false)
}

fn mapped(file: &File, range: Range<u64>, shared: bool) -> Result<Vec<Range<u64>>> {
    let found = extents::map_range(file, range.clone(), true)?;
    let mut merged: Vec<Range<u64>> = Vec::new();
    for extent in found.into_iter().filter(|extent| extent.shared == shared) {
        let end = (extent.logical + extent.length).min(range.end);
        let start = extent.logical.max(range.start);
        match merged.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ if start < end => merged.push(start..end),
            _ => {}
        }
    }
    Ok(merged)
}

/// Returns the number of bytes in all `ranges`.
pub fn length(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Returns `ranges` without the bytes of `others`; both must be sorted.
pub fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in ranges {
        let mut start = range.start;
        for other in others.iter().filter(|it| it.start < range.end && it.end > range.start) {
            if start < other.start {
                left.push(start..other.start);
            }
            start = start.max(other.end);
        }
        if start < range.end {
            left.push(start..range.end);
        }
    }
    left
}

/// Returns the bytes in both `ranges` and `others`; both must be sorted.
pub fn common(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    without(ranges, &without(ranges, others))
}

/// Allocates blocks for these ranges of `file`. If there is no space for all of them, the error
/// satisfies [`Error::is_full`].
pub fn allocate(file: &File, ranges: &[Range<u64>]) -> Result<()> {
    ranges.iter().try_for_each(|range| space::allocate_range(file, range.clone()))
}

/// Frees all blocks of `file` outside `ranges`, and truncates it after the last range.
pub fn keep_only(file: &File, ranges: &[Range<u64>]) -> Result<()> {
    let end = ranges.last().map_or(0, |last| last.end);
    file.set_len(end).map_err(Error::file("shorten", file))?;
    without(std::slice::from_ref(&(0..end)), ranges)
        .into_iter()
        .try_for_each(|gap| space::discard(file, gap))
}

/// Copies these bytes to the same offset of `dst`, which has its own blocks there, and flushes
/// them.
pub fn copy(src: &File, dst: &File, ranges: &[Range<u64>]) -> Result<()> {
    let mut buffer = vec![0; usize::try_from(BUFFER).unwrap_or(0)];
    for range in ranges {
        for at in (range.start..range.end).step_by(buffer.len()) {
            let length = usize::try_from((range.end - at).min(BUFFER)).unwrap_or(0);
            let bytes = &mut buffer[..length];
            src.read_exact_at(bytes, at).map_err(Error::file("read", src))?;
            dst.write_all_at(bytes, at).map_err(Error::file("copy to", dst))?;
        }
    }
    dst.sync_data().map_err(Error::file("flush", dst))
}

/// Makes `dst` share the blocks of `src` in these ranges, which must be whole blocks of both files.
///
/// Takes no space but for the filesystem's metadata. Not atomic over a crash: after one, each block
/// of `dst` is either old or new.
pub fn reflink(src: &File, dst: &File, ranges: &[Range<u64>]) -> Result<()> {
    ranges.iter().try_for_each(|range| {
        sys::clone::clone_range(src, dst, range.start, range.end - range.start)
            .map_err(Error::file("clone into", dst))
    })
}

/// Drops these bytes from the page cache, since they will not be read soon. Only a hint.
pub fn forget_cached(file: &File, range: Range<u64>) {
    if let Some(length) = NonZeroU64::new(range.end - range.start) {
        let _ = fadvise(file, range.start, Some(length), Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_from_each_other() {
        let left = without(&[0..10, 20..30], &[2..4, 8..22, 29..40]);
        assert_eq!(left, [0..2, 4..8, 22..29]);
        assert_eq!(without(&[0..2, 5..6], &[]), [0..2, 5..6]);
        assert_eq!(common(&[0..10, 20..30], &[2..4, 8..22]), [2..4, 8..10, 20..22]);
        assert_eq!(without(&[0..2, 5..6], &[0..3, 4..9]), []);
        assert_eq!(length(&[0..2, 4..8]), 6);
    }
}
