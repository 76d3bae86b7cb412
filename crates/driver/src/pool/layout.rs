//! Where things lie in a pool's folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The folder of a pool. File names are the driver's own ids, never an orchestrator's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The pool in this folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The state file.
    pub fn state(&self) -> PathBuf {
        self.root.join("state.redb")
    }

    /// Space that is given up when the pool is full.
    pub fn ballast(&self) -> PathBuf {
        self.root.join("ballast")
    }

    /// The pool's format and UUID.
    pub fn identity(&self) -> PathBuf {
        self.root.join("pool.json")
    }

    /// A link to the socket that `wharf driver pool` talks to, while a driver serves the pool.
    pub fn admin_socket(&self) -> PathBuf {
        self.root.join("admin.sock")
    }

    /// Images of volumes.
    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// Images of snapshots.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Images in the making; nothing here survives a start.
    pub fn partial(&self) -> PathBuf {
        self.root.join("partial")
    }

    /// Images that no record knows, moved here and never deleted by the driver.
    pub fn quarantine(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    /// The folder of the staging paths of ephemeral volumes.
    fn staging(&self) -> PathBuf {
        self.root.join("ephemeral")
    }

    /// What programs that were cut short have overwritten in images.
    pub fn undo_folder(&self) -> PathBuf {
        self.root.join("undo")
    }

    /// What a program overwrites in an image, until it is done.
    pub fn undo(&self, image: &str) -> PathBuf {
        self.undo_folder().join(format!("{image}.e2undo"))
    }

    /// Where ephemeral volumes are staged, which no orchestrator does for them.
    pub fn ephemeral(&self, image: &str) -> PathBuf {
        self.staging().join(image)
    }

    /// Space that is held for copies until they have blocks of their own.
    pub fn reserves(&self) -> PathBuf {
        self.root.join("reserve")
    }

    /// The space that is held for an image, at the place where the image needs it.
    pub fn reserve(&self, image: &str) -> PathBuf {
        self.reserves().join(format!("{image}.reserve"))
    }

    /// Shares the old blocks of an image until its new ones are on disk.
    pub fn pin(&self, image: &str) -> PathBuf {
        self.reserves().join(format!("{image}.pin"))
    }

    /// The folders, in the order in which they are made.
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

    /// Whether anything but its identity says that there is a pool.
    ///
    /// # Errors
    /// When the disk does not tell.
    pub fn is_used(&self) -> Result<bool, Error> {
        Ok(is_there(&self.state())? || self.has_images()?)
    }

    /// Whether there is a pool, or what is left of one.
    ///
    /// # Errors
    /// When the disk does not tell.
    pub fn holds_pool(&self) -> Result<bool, Error> {
        Ok(is_there(&self.identity())? || self.is_used()?)
    }

    /// Whether there are images of volumes or snapshots.
    ///
    /// # Errors
    /// When the disk does not tell.
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

    /// The image of a volume.
    pub fn volume(&self, image: &str) -> PathBuf {
        self.volumes().join(file_name(image))
    }

    /// The image of a snapshot.
    pub fn snapshot(&self, image: &str) -> PathBuf {
        self.snapshots().join(file_name(image))
    }

    /// An image in the making.
    pub fn in_the_making(&self, image: &str) -> PathBuf {
        self.partial().join(file_name(image))
    }
}

/// Whether anything has this name, also a symlink that leads nowhere.
///
/// # Errors
/// When the disk does not tell: a file that cannot be looked at is not missing.
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
