//! The last steps of creating an image.

use std::{fs, path::Path};

use wharf_mount::sync;

use super::{Mark, Pool, mark::flush};
use crate::{backend::Backend, error::Error, points::Point};

impl Pool {
    /// Marks an image and moves it to its final path, durably. The `points` are reached after the
    /// mark and after the rename.
    ///
    /// If the image was created by sharing blocks, the pool's journal holds all changes in their
    /// order. Then one flush at the end suffices, if flushing a file also flushes its name.
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

/// Renames a file. The name is durable only after a flush.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(Error::file("rename", from))
}
