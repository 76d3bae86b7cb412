//! Marks: the record of an image, stored in an extended attribute of the image.
//!
//! The state file is authoritative. If it is lost, it is rebuilt from the marks. They omit the node
//! side of a volume, which the kernel and the orchestrator know.

use std::{fs::File, path::Path};

use serde::{Deserialize, Serialize};
use wharf_mount::attribute;

use crate::{
    error::Error,
    files,
    record::{Blocks, Group, Snapshot, Volume},
};

const ATTRIBUTE: &str = "user.wharf.record";

/// Record of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The image of a volume.
    Volume(Box<Volume>),
    /// The image of a snapshot.
    Snapshot {
        /// The snapshot.
        snapshot: Box<Snapshot>,
        /// Its group, without the list of snapshots, which name the group themselves.
        group: Option<Box<Group>>,
    },
}

impl Mark {
    /// Creates the mark of a volume.
    pub fn volume(volume: &Volume) -> Self {
        Self::Volume(Box::new(Volume {
            attachments: Default::default(),
            stage: None,
            publications: Default::default(),
            frozen_for_copy: false,
            ..volume.clone()
        }))
    }

    /// Creates the mark of a snapshot.
    pub fn snapshot(snapshot: &Snapshot, group: Option<&Group>) -> Self {
        let group = group.map(|group| Box::new(Group { snapshots: Vec::new(), ..group.clone() }));
        Self::Snapshot { snapshot: Box::new(snapshot.clone()), group }
    }

    /// Writes the mark to an image, durably.
    ///
    /// # Errors
    /// If the pool's filesystem does not support attributes, or fails.
    pub fn write(&self, image: &Path) -> Result<(), Error> {
        flush(&self.put(image)?, image)
    }

    /// Writes the mark to an image, which the caller then flushes.
    ///
    /// # Errors
    /// If the pool's filesystem does not support attributes, or fails.
    pub fn put(&self, image: &Path) -> Result<File, Error> {
        let file = files::open_to_write(image).map_err(Error::file("open image", image))?;
        let bytes = serde_json::to_vec(self)
            .map_err(|error| Error::file("mark image", image)(std::io::Error::other(error)))?;
        attribute::set(&file, ATTRIBUTE, &bytes)?;
        Ok(file)
    }

    /// Updates the `blocks` in an image's mark.
    ///
    /// # Errors
    /// If the pool's filesystem fails.
    pub(super) fn note_blocks(image: &Path, now: Blocks) -> Result<(), Error> {
        let Some(mut mark) = Self::read(image)? else { return Ok(()) };
        match &mut mark {
            Self::Volume(volume) => volume.blocks = now,
            Self::Snapshot { snapshot, .. } => snapshot.blocks = now,
        }
        mark.write(image)
    }

    /// Reads an image's mark; `None` if it has no valid one.
    ///
    /// # Errors
    /// If the image cannot be read.
    pub fn read(image: &Path) -> Result<Option<Self>, Error> {
        let file = files::open(image).map_err(Error::file("open image", image))?;
        let bytes = attribute::get(&file, ATTRIBUTE)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// Flushes an image with its mark.
pub(super) fn flush(file: &File, image: &Path) -> Result<(), Error> {
    file.sync_all().map_err(Error::file("flush image", image))
}
