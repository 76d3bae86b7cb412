//! The folder of the state file, held open and locked for as long as the state is.
//!
//! Whatever is mounted at its path meanwhile, files are opened in the folder that was there at first, its filesystem cannot be
//! unmounted without force, and no other process gets the pool while a state file that failed is closed.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, flock, open, renameat, syncfs, unlinkat},
    io::Errno,
};

use super::StoreError;
use crate::files;

/// A folder that this process owns.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// The folder of a file, and the file's name in it.
    pub(super) fn of(file: &Path) -> Result<(Self, OsString), StoreError> {
        let unreadable = |path: PathBuf, error: io::Error| StoreError::Unreadable {
            path,
            reason: error.to_string(),
        };
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(unreadable(file.to_owned(), io::ErrorKind::InvalidInput.into()));
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = open(folder, flags, Mode::empty())
            .map_err(|error| unreadable(folder.to_owned(), error.into()))?;
        match flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok((Self(held), name.to_owned())),
            Err(Errno::WOULDBLOCK) => Err(StoreError::Busy { path: file.to_owned() }),
            Err(error) => Err(unreadable(folder.to_owned(), error.into())),
        }
    }

    /// Opens a file for reading and writing.
    pub(super) fn open(&self, name: &OsString) -> io::Result<File> {
        files::open_to_write_in(&self.0, name)
    }

    /// Makes a file for reading and writing, in place of what has its name.
    pub(super) fn create(&self, name: &OsString) -> io::Result<File> {
        files::create_anew_in(&self.0, name)
    }

    pub(super) fn remove(&self, name: &OsString) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Gives a file another name in the folder, in place of a file that has it.
    pub(super) fn rename(&self, from: &OsString, to: &OsString) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Writes all that the filesystem has not written yet.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(syncfs(&self.0)?)
    }
}
