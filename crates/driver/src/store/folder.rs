//! The folder of the state file, held open and locked as long as the store is open.
//!
//! Files are opened relative to this folder, even if something else is mounted at its path later.
//! Its filesystem cannot be unmounted without force, and no other process can open the pool while a
//! failed state file is closed.

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

/// A folder that this process has locked.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens the folder of a file. Returns it with the file's name.
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

    /// Creates a file for reading and writing, replacing one of this name.
    pub(super) fn create(&self, name: &OsString) -> io::Result<File> {
        files::create_anew_in(&self.0, name)
    }

    pub(super) fn remove(&self, name: &OsString) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Renames a file in the folder, replacing one of the new name.
    pub(super) fn rename(&self, from: &OsString, to: &OsString) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Flushes the filesystem.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(syncfs(&self.0)?)
    }
}
