//! What an image says of itself: its record, in an extended attribute.
//!
//! The state file is the truth while it is there. When it is lost, the marks make it again. They leave out what a node
//! does with a volume, since the kernel and the orchestrator know that.

use std::fs::File;
use std::path::Path;

use serde::{Deserialize, Serialize};
use wharf_mount::attribute;

use crate::error::Error;
use crate::files;
use crate::record::{Blocks, Group, Snapshot, Volume};

const ATTRIBUTE: &str = "user.wharf.record";

/// The record of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The image is a volume's.
    Volume(Box<Volume>),
    /// The image is a snapshot's.
    Snapshot {
        /// The snapshot.
        snapshot: Box<Snapshot>,
        /// Its group, without the list of its snapshots: that is who names it.
        group: Option<Box<Group>>,
    },
}

impl Mark {
    /// A volume's mark.
    pub fn volume(volume: &Volume) -> Self {
        Self::Volume(Box::new(Volume {
            attachments: Default::default(),
            stage: None,
            publications: Default::default(),
            frozen_for_copy: false,
            ..volume.clone()
        }))
    }

    /// A snapshot's mark.
    pub fn snapshot(snapshot: &Snapshot, group: Option<&Group>) -> Self {
        let group = group.map(|group| Box::new(Group { snapshots: Vec::new(), ..group.clone() }));
        Self::Snapshot { snapshot: Box::new(snapshot.clone()), group }
    }

    /// Writes the mark to an image, durably.
    ///
    /// # Errors
    /// When the pool's filesystem keeps no attributes or fails.
    pub fn write(&self, image: &Path) -> Result<(), Error> {
        flush(&self.put(image)?, image)
    }

    /// Writes the mark to an image that is still to be flushed.
    ///
    /// # Errors
    /// When the pool's filesystem keeps no attributes or fails.
    pub fn put(&self, image: &Path) -> Result<File, Error> {
        let file = files::open_to_write(image).map_err(Error::file("open image", image))?;
        let bytes = serde_json::to_vec(self)
            .map_err(|error| Error::file("mark image", image)(std::io::Error::other(error)))?;
        attribute::set(&file, ATTRIBUTE, &bytes)?;
        Ok(file)
    }

    /// Writes to an image's mark whose the image's blocks are.
    ///
    /// # Errors
    /// When the pool's filesystem fails.
    pub(super) fn note_blocks(image: &Path, now: Blocks) -> Result<(), Error> {
        let Some(mut mark) = Self::read(image)? else { return Ok(()) };
        match &mut mark {
            Self::Volume(volume) => volume.blocks = now,
            Self::Snapshot { snapshot, .. } => snapshot.blocks = now,
        }
        mark.write(image)
    }

    /// Reads an image's mark; none when it has none or one that is not understood.
    ///
    /// # Errors
    /// When the image cannot be read.
    pub fn read(image: &Path) -> Result<Option<Self>, Error> {
        let file = files::open(image).map_err(Error::file("open image", image))?;
        let bytes = attribute::get(&file, ATTRIBUTE)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// Waits until an image is on disk, with its mark.
pub(super) fn flush(file: &File, image: &Path) -> Result<(), Error> {
    file.sync_all().map_err(Error::file("flush image", image))
}
