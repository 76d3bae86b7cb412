//! How images are made, copied and grown.
//!
//! A backend is what differs between kinds of storage. Two are here, both images on a filesystem: one copies by sharing
//! blocks, which takes no time and no space, the other by reading and writing. Others (logical volumes, quotas) fit behind
//! the same trait: all that the rest of the driver wants is a device for a path and a copy for an image.

mod image;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use image::Images;

use crate::error::Error;

/// The kinds of backends, as the StorageClass parameter `backend` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendKind {
    /// Copies share blocks.
    ImageReflink,
    /// Copies are copies.
    ImageCopy,
}

/// What an image is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its size in bytes.
    pub size: u64,
    /// Whether its space is taken only as it is written.
    pub thin: bool,
}

/// What an image takes of its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes allocated, shared ones counted in full.
    pub allocated: u64,
    /// Pieces that the image lies in; each makes a copy and a lookup slower.
    pub extents: u32,
}

/// A kind of storage. Calls block; the caller keeps two of them from the same image.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Whether a copy is instant, so that it can be cut from a device in use.
    fn instant(&self) -> bool;

    /// Makes an empty image.
    ///
    /// # Errors
    /// When the pool is full or its disk fails.
    fn provision(&self, image: &Path, shape: Shape) -> Result<(), Error>;

    /// Makes an image with the bytes of `source`, which is not larger. Takes no longer than `limit`.
    ///
    /// # Errors
    /// When the pool is full, its disk fails, or the limit is reached.
    fn copy(
        &self,
        source: &Path,
        image: &Path,
        shape: Shape,
        limit: Option<Duration>,
    ) -> Result<(), Error>;

    /// Grows an image; one that is large enough already stays as it is.
    ///
    /// # Errors
    /// When the pool is full or its disk fails.
    fn grow(&self, image: &Path, shape: Shape) -> Result<(), Error>;

    /// What an image takes.
    ///
    /// # Errors
    /// When the image cannot be read.
    fn footprint(&self, image: &Path) -> Result<Footprint, Error>;
}

impl fmt::Display for BackendKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::ImageReflink => "image-reflink",
            Self::ImageCopy => "image-copy",
        })
    }
}

/// A backend's name that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("backend {0:?} is not known; known are image-reflink and image-copy")]
pub struct UnknownBackend(String);

impl FromStr for BackendKind {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        match text {
            "image-reflink" => Ok(Self::ImageReflink),
            "image-copy" => Ok(Self::ImageCopy),
            other => Err(UnknownBackend(other.to_owned())),
        }
    }
}
