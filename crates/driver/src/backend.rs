//! Backends create, copy and grow images.
//!
//! A backend encapsulates one kind of storage. Both backends here store images on a filesystem: one
//! copies an image by sharing blocks, instantly and without space, the other by reading and
//! writing. The rest of the driver needs only a path to attach a device to and a way to copy an
//! image, so other backends (logical volumes, quotas) fit behind the same trait.

mod image;

use std::{fmt, path::Path, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

pub use image::Images;

use crate::error::Error;

/// Backends by the names of the StorageClass parameter `backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendKind {
    /// Copies share blocks with their source.
    ImageReflink,
    /// Copies have blocks of their own.
    ImageCopy,
}

/// Requested size and kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Size in bytes.
    pub size: u64,
    /// Whether blocks are allocated only when they are written.
    pub thin: bool,
}

/// Space that an image uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Allocated bytes; shared blocks count in full.
    pub allocated: u64,
    /// Number of extents; each makes copies and lookups slower.
    pub extents: u32,
}

/// A kind of storage. Calls block, and the caller serializes calls on the same image.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Whether copies are instant, so that the image of a mounted volume can be copied.
    fn instant(&self) -> bool;

    /// Creates an empty image.
    ///
    /// # Errors
    /// If the pool is full or its disk fails.
    fn provision(&self, image: &Path, shape: Shape) -> Result<(), Error>;

    /// Creates an image with the content of `source`, which must not be larger, within `limit`.
    ///
    /// # Errors
    /// If the pool is full, its disk fails, or the limit is exceeded.
    fn copy(
        &self,
        source: &Path,
        image: &Path,
        shape: Shape,
        limit: Option<Duration>,
    ) -> Result<(), Error>;

    /// Grows an image. One that is large enough is not changed.
    ///
    /// # Errors
    /// If the pool is full or its disk fails.
    fn grow(&self, image: &Path, shape: Shape) -> Result<(), Error>;

    /// Returns the space that an image uses.
    ///
    /// # Errors
    /// If the image cannot be read.
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

/// An unknown backend name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown backend {0:?}: expected image-reflink or image-copy")]
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
