//! Ballast: space held back so that a full pool can still commit a delete.

use std::{
    ffi::OsString,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
};

use rustix::fs::{FallocateFlags, fallocate};

use super::folder::Folder;

/// Enough for redb to extend its file for many deletes.
const SIZE: u64 = 8 << 20;

/// A file that is deleted to free its space.
#[derive(Debug)]
pub(super) struct Ballast {
    name: OsString,
    held: bool,
}

impl Ballast {
    /// Finds the existing ballast. [`Self::renew`] completes or creates it.
    pub(super) fn find(folder: &Folder, name: OsString) -> Self {
        let held = folder.open(&name).is_ok();
        Self { name, held }
    }

    /// Frees the ballast's space. Returns false if there is none.
    pub(super) fn release(&mut self, folder: &Folder) -> bool {
        let released = std::mem::take(&mut self.held) && folder.remove(&self.name).is_ok();
        if released {
            // btrfs frees the space only at the end of its transaction.
            let _ = folder.sync();
        }
        released
    }

    /// Runs `work`, and again without the ballast if the disk is full. The first attempt must leave
    /// nothing but its own files.
    pub(super) fn make_room<T>(
        &mut self,
        folder: &Folder,
        work: impl Fn() -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        match work() {
            Err(error) if is_full(&error) && self.release(folder) => {
                tracing::warn!(%error, "disk is full, released ballast");
                work()
            }
            done => done,
        }
    }

    /// Allocates the ballast, or the missing part of it, if the pool has space.
    pub(super) fn renew(&mut self, folder: &Folder) {
        self.held = take(folder, &self.name).is_ok();
    }

    /// Allocates the ballast again if it was released and the pool has space.
    pub(super) fn restore(&mut self, folder: &Folder) {
        if !self.held {
            self.renew(folder);
        }
    }
}

/// Whether an attempt failed for lack of space.
pub(super) fn is_full(error: &redb::Error) -> bool {
    let redb::Error::Io(error) = error else { return false };
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn take(folder: &Folder, name: &OsString) -> io::Result<()> {
    let file = match folder.open(name) {
        // There is none, or someone replaced it. Allocated space stays allocated.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
            folder.create(name)?
        }
        file => file?,
    };
    // A full XFS refuses to allocate even blocks that are allocated already.
    if file.metadata()?.blocks() * 512 >= SIZE {
        return Ok(());
    }
    fallocate(&file, FallocateFlags::empty(), 0, SIZE).map_err(|error| {
        // An incomplete ballast would only fill the pool further.
        let _ = folder.remove(name);
        error.into()
    })
}
