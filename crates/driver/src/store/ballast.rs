//! Space held back so that a full pool can still commit a delete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

use crate::private;

/// Enough for redb to grow its file for a burst of deletes.
const SIZE: u64 = 8 << 20;

/// A file that is there only to be given up.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    held: bool,
}

impl Ballast {
    pub(super) fn new(path: &Path) -> Self {
        let mut ballast = Self { path: path.to_owned(), held: false };
        ballast.restore();
        ballast
    }

    /// Gives the space up; false when there is none to give.
    pub(super) fn release(&mut self) -> bool {
        let released = std::mem::take(&mut self.held) && fs::remove_file(&self.path).is_ok();
        if released && let Some(folder) = self.path.parent() {
            // btrfs gives the space to nobody before its transaction is over.
            let _ = fs::File::open(folder).map(rustix::fs::syncfs);
        }
        released
    }

    /// Takes the space back when the pool has room again.
    pub(super) fn restore(&mut self) {
        if !self.held {
            self.held = take(&self.path).is_ok();
        }
    }
}

fn take(path: &Path) -> io::Result<()> {
    let file = private::options().create(true).truncate(false).write(true).open(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, SIZE).map_err(|error| {
        // Half a ballast would only fill the pool further.
        let _ = fs::remove_file(path);
        error.into()
    })
}
