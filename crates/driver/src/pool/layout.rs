//! Paths in a pool's folder.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::error::Error;

/// The folder of a pool. File names are IDs of the driver, never an orchestrator's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout of the pool in this folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The pool's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The state file.
    pub fn state(&self) -> PathBuf {
        self.root.join("state.redb")
    }

    /// File that is deleted to free space when the pool is full.
    pub fn ballast(&self) -> PathBuf {
        self.root.join("ballast")
    }

    /// File with the pool's format and UUID.
    pub fn identity(&self) -> PathBuf {
        self.root.join("pool.json")
    }

    /// Link to the driver's admin socket while a driver serves the pool.
    pub fn admin_socket(&self) -> PathBuf {
        self.root.join("admin.sock")
    }

    /// Folder of the images of volumes.
    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// Folder of the images of snapshots.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Folder of incomplete images; emptied at startup.
    pub fn partial(&self) -> PathBuf {
        self.root.join("partial")
    }

    /// Folder of images without a record, which the driver never deletes.
    pub fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    /// Folder of the staging paths of inline volumes.
    fn staging(&self) -> PathBuf {
        self.root.join("ephemeral")
    }

    /// Folder of undo files.
    pub fn undo_folder(&self) -> PathBuf {
        self.root.join("undo")
    }

    /// Undo file of a program that changes an image.
    pub fn undo(&self, image: &str) -> PathBuf {
        self.undo_folder().join(format!("{image}.e2undo"))
    }

    /// Staging path of an inline volume, which the orchestrator does not stage.
    pub fn ephemeral(&self, image: &str) -> PathBuf {
        self.staging().join(image)
    }

    /// Folder of reserves: space for copies that are being unshared.
    pub fn reserves(&self) -> PathBuf {
        self.root.join("reserve")
    }

    /// Reserve of an image, with blocks where the image needs its own.
    pub fn reserve(&self, image: &str) -> PathBuf {
        self.reserves().join(format!("{image}.reserve"))
    }

    /// Pin of an image: shares its old blocks until its new ones are on disk.
    pub fn pin(&self, image: &str) -> PathBuf {
        self.reserves().join(format!("{image}.pin"))
    }

    /// All folders, in the order of their creation.
    pub fn folders(&self) -> [PathBuf; 7] {
        [
            self.volumes(),
            self.snapshots(),
            self.partial(),
            self.quarantine(),
            self.staging(),
            self.undo_folder(),
            self.reserves(),
        ]
    }

    /// Whether the folder has a state file or images, which make it a pool even without an
    /// identity.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn is_used(&self) -> Result<bool, Error> {
        Ok(is_there(&self.state())? || self.has_images()?)
    }

    /// Whether the folder has a pool, or the remains of one.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn holds_pool(&self) -> Result<bool, Error> {
        Ok(is_there(&self.identity())? || self.is_used()?)
    }

    /// Whether the folder has images of volumes or snapshots.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn has_images(&self) -> Result<bool, Error> {
        for folder in [self.volumes(), self.snapshots()] {
            match fs::read_dir(&folder).map(|mut entries| entries.next().transpose()) {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(_))) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Ok(Err(error)) | Err(error) => return Err(Error::file("list", &folder)(error)),
            }
        }
        Ok(false)
    }

    /// Path of a volume's image.
    pub fn volume(&self, image: &str) -> PathBuf {
        self.volumes().join(file_name(image))
    }

    /// Path of a snapshot's image.
    pub fn snapshot(&self, image: &str) -> PathBuf {
        self.snapshots().join(file_name(image))
    }

    /// Path of an incomplete image.
    pub fn partial_image(&self, image: &str) -> PathBuf {
        self.partial().join(file_name(image))
    }
}

/// Whether the name is taken, even by a dangling symlink.
///
/// # Errors
/// If the disk cannot be read: such a file is not missing.
pub(crate) fn is_there(path: &Path) -> Result<bool, Error> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::file("look at", path)(error)),
    }
}

fn file_name(image: &str) -> String {
    format!("{image}.img")
}
