//! Space held back so that a full pool can still commit a delete.

use std::ffi::OsString;
use std::io;

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
    pub(super) fn new(folder: &Folder, name: OsString) -> Self {
        let mut ballast = Self { name, held: false };
        ballast.restore(folder);
        ballast
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

    /// Takes the space back when the pool has room again.
    pub(super) fn restore(&mut self, folder: &Folder) {
        if !self.held {
            self.held = take(folder, &self.name).is_ok();
        }
    }
}

fn take(folder: &Folder, name: &OsString) -> io::Result<()> {
    let file = folder.create(name)?;
    fallocate(&file, FallocateFlags::empty(), 0, SIZE).map_err(|error| {
        // Half a ballast would only fill the pool further.
        let _ = folder.remove(name);
        error.into()
    })
}
