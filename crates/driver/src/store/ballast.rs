//! Space held back so that a full pool can still commit a delete.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, fallocate};

use super::folder::Folder;

/// Enough for redb to grow its file for a burst of deletes.
const SIZE: u64 = 8 << 20;

/// A file that is there only to be given up.
#[derive(Debug)]
pub(super) struct Ballast {
    name: OsString,
    held: bool,
}

impl Ballast {
    /// The ballast that there is, if any. [`Self::renew`] makes it whole, or takes one where there is none.
    pub(super) fn find(folder: &Folder, name: OsString) -> Self {
        let held = folder.open(&name).is_ok();
        Self { name, held }
    }

    /// Gives the space up; false when there is none to give.
    pub(super) fn release(&mut self, folder: &Folder) -> bool {
        let released = std::mem::take(&mut self.held) && folder.remove(&self.name).is_ok();
        if released {
            // btrfs gives the space to nobody before its transaction is over.
            let _ = folder.sync();
        }
        released
    }

    /// Works, and once more without the ballast if there is no room for it on the disk. Nothing but the work's own files may
    /// be kept of the first attempt.
    pub(super) fn make_room<T>(
        &mut self,
        folder: &Folder,
        work: impl Fn() -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        match work() {
            Err(error) if is_full(&error) && self.release(folder) => {
                tracing::warn!(%error, "disk is full, ballast released");
                work()
            }
            done => done,
        }
    }

    /// Takes the space, or what is missing of it, if the pool has room.
    pub(super) fn renew(&mut self, folder: &Folder) {
        self.held = take(folder, &self.name).is_ok();
    }

    /// Takes the space back when the pool has room again.
    pub(super) fn restore(&mut self, folder: &Folder) {
        if !self.held {
            self.renew(folder);
        }
    }
}

/// Whether an attempt failed for want of space.
pub(super) fn is_full(error: &redb::Error) -> bool {
    let redb::Error::Io(error) = error else { return false };
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn take(folder: &Folder, name: &OsString) -> io::Result<()> {
    let file = match folder.open(name) {
        // There is none, or somebody put something else in its place. Space that is held already stays held.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
            folder.create(name)?
        }
        file => file?,
    };
    // A full XFS refuses to allocate also what is allocated.
    if file.metadata()?.blocks() * 512 >= SIZE {
        return Ok(());
    }
    fallocate(&file, FallocateFlags::empty(), 0, SIZE).map_err(|error| {
        // Half a ballast would only fill the pool further.
        let _ = folder.remove(name);
        error.into()
    })
}
