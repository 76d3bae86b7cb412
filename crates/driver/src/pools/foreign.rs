//! Detects pools that another process serves: this driver must not thaw, unmount or detach their
//! images.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::PathBuf,
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, open},
    io::Errno,
};
use wharf_mount::loopdev::Loop;

use super::Pools;
use crate::{
    pool::{Layout, identity, identity::Found},
    pool_image,
    state_dir::AttachedImage,
};

/// Locks on the folders of a device's pool: no other process can begin to serve it until this is
/// dropped.
#[derive(Debug)]
#[must_use = "dropping this releases the locks"]
pub(super) struct UnservedPool {
    _folders: Vec<File>,
}

impl Pools {
    /// Locks the pool of a device against other processes. Returns `None` if one serves it. Reads
    /// from the pool's disk.
    pub(super) fn hold_unserved(
        &self,
        device: &Loop,
        note: Option<&AttachedImage>,
    ) -> Option<UnservedPool> {
        let mut held = Vec::new();
        for folder in self.folders_of(device, note) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // A folder that does not exist is not served.
            let Ok(folder) = open(&folder, flags, Mode::empty()) else { continue };
            let folder = File::from(folder);
            if self.serves_folder(&folder) {
                continue;
            }
            // A process that serves a pool holds an exclusive lock. Teardowns hold shared locks.
            match flock(&folder, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) => return None,
                _ => held.push(folder),
            }
        }
        Some(UnservedPool { _folders: held })
    }

    /// Whether another process serves the pool of a device.
    pub(super) fn is_foreign(&self, device: &Loop, note: Option<&AttachedImage>) -> bool {
        self.hold_unserved(device, note).is_none()
    }

    /// Folders of a device's pool: the folder of its image, and the noted folder if the pool is
    /// there.
    fn folders_of(&self, device: &Loop, note: Option<&AttachedImage>) -> Vec<PathBuf> {
        let image = fs::metadata(&device.backing);
        let is_there = image.is_ok_and(|file| (file.dev(), file.ino()) == device.identity());
        let beside = device.backing.parent().and_then(|volumes| volumes.parent());
        let mut folders: Vec<PathBuf> =
            beside.filter(|_| is_there).map(Into::into).into_iter().collect();
        if let Some(image) = note {
            let notes = self.state_dir.notes().into_values();
            let noted = notes.filter(|note| note.pool == image.pool);
            let noted = noted.map(|note| pool_image::folder(&note.folder));
            folders.extend(noted.filter(|folder| {
                let found = identity::look(&Layout::new(folder));
                found.is_ok_and(|found| found == Found::Pool(image.pool))
            }));
        }
        folders
    }

    /// Whether this driver serves the pool in a folder, and so holds its lock.
    fn serves_folder(&self, folder: &File) -> bool {
        let Ok(found) = folder.metadata() else { return false };
        let identity = (found.dev(), found.ino());
        self.served().iter().any(|it| it.pool.folder_identity() == identity)
    }
}
