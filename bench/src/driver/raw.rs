//! The disk operations of CreateVolume, without a driver.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::Result;
use wharf_mount::{attribute, space, sync};

/// A commit of redb for one row: a part of the header and five pages.
const HEADER: u64 = 320;
const PAGE: u64 = 4096;
const PAGES: u64 = 5;
/// The size of a volume's mark.
const MARK: [u8; 720] = [b'x'; 720];

/// A pool without a driver: the same files, written and flushed in the same order.
pub(super) struct RawPool {
    folder: PathBuf,
    state: File,
    /// redb never overwrites pages of the last commit.
    next: AtomicU64,
}

impl RawPool {
    pub(super) fn new(folder: &Path) -> Result<Self> {
        for name in ["partial", "volumes"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let state = File::create(folder.join("state"))?;
        state.write_all_at(&[0; 4 << 20], 0)?;
        state.sync_all()?;
        Ok(Self { folder: folder.to_owned(), state, next: AtomicU64::new(1) })
    }

    /// Makes an image of `size` bytes: promise, image, mark, flush, rename, commit.
    pub(super) fn create(&self, name: &str, size: u64) -> Result<()> {
        self.commit()?;
        let (partial, image) = (self.path("partial", name), self.path("volumes", name));
        let file = File::create_new(&partial)?;
        space::allocate(&file, size, true)?;
        attribute::set(&file, "user.wharf.record", &MARK)?;
        file.sync_all()?;
        fs::rename(&partial, &image)?;
        sync::folder(&self.folder.join("volumes"))?;
        self.commit()
    }

    pub(super) fn delete(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.path("volumes", name))?)
    }

    fn commit(&self) -> Result<()> {
        let first = self.next.fetch_add(PAGES, Ordering::Relaxed);
        self.state.write_all_at(&[1; HEADER as usize], 0)?;
        for page in first..first + PAGES {
            self.state.write_all_at(&[2; PAGE as usize], (1 + page % 1000) * PAGE)?;
        }
        Ok(self.state.sync_data()?)
    }

    fn path(&self, folder: &str, name: &str) -> PathBuf {
        self.folder.join(folder).join(name)
    }
}
