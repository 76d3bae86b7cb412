//! The last steps of an image in the making.

use std::fs;
use std::path::Path;

use wharf_mount::sync;

use super::mark::flush;
use super::{Mark, Pool};
use crate::backend::Backend;
use crate::error::Error;
use crate::points::Point;

impl Pool {
    /// Gives an image its mark and its place, durably. The `points` are reached once it is marked and once it is renamed.
    ///
    /// Where shared blocks are all that the image has, the pool's journal holds everything in the order it was done in. If
    /// flushing a file flushes its name, too, one flush at the end is enough.
    pub(super) fn put_in_place(
        &self,
        mark: &Mark,
        partial: &Path,
        place: &Path,
        backend: &dyn Backend,
        points: [Point; 2],
    ) -> Result<(), Error> {
        let [marked, renamed] = points;
        let file = mark.put(partial)?;
        let flush_once = backend.instant() && sync::keeps_its_name(&file, partial)?;
        if !flush_once {
            flush(&file, partial)?;
        }
        self.reach(marked)?;
        rename(partial, place)?;
        self.reach(renamed)?;
        if flush_once {
            return flush(&file, place);
        }
        Ok(place.parent().map_or(Ok(()), sync::folder)?)
    }
}

/// Gives a file its name; that this lasts takes a flush.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(Error::file("rename", from))
}
