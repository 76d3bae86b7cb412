//! Image files on a filesystem, copied by sharing blocks or by reading and writing.

use std::{
    fs::File,
    path::Path,
    time::{Duration, Instant},
};

use wharf_mount::{clone, extents, space};

use super::{Backend, BackendKind, Footprint, Shape};
use crate::{error::Error, files};

/// Image files on a filesystem. The two kinds differ only in how they copy.
#[derive(Clone, Copy, Debug)]
pub struct Images(BackendKind);

impl Images {
    /// For filesystems that share blocks between files.
    pub const REFLINK: Self = Self(BackendKind::ImageReflink);
    /// For any filesystem.
    pub const COPY: Self = Self(BackendKind::ImageCopy);
}

impl Backend for Images {
    fn instant(&self) -> bool {
        self.0 == BackendKind::ImageReflink
    }

    fn provision(&self, image: &Path, shape: Shape) -> Result<(), Error> {
        enlarge(&self.create(image, shape)?, shape)
    }

    fn copy(
        &self,
        source: &Path,
        image: &Path,
        shape: Shape,
        limit: Option<Duration>,
    ) -> Result<(), Error> {
        let (from, to) = (open(source)?, self.create(image, shape)?);
        match self.0 {
            BackendKind::ImageReflink => clone::reflink(&from, &to)?,
            BackendKind::ImageCopy => {
                let begun = Instant::now();
                let in_time = |_| limit.is_none_or(|limit| begun.elapsed() < limit);
                clone::copy_sparse(&from, &to, in_time)?;
            }
        }
        enlarge(&to, shape)
    }

    fn grow(&self, image: &Path, shape: Shape) -> Result<(), Error> {
        let file = files::open_to_write(image).map_err(Error::file("open image", image))?;
        enlarge(&file, shape)?;
        file.sync_all().map_err(Error::file("flush image", image))
    }

    fn footprint(&self, image: &Path) -> Result<Footprint, Error> {
        let image = open(image)?;
        let extents = match extents::count(&image) {
            // A filesystem in memory reports no extents.
            Err(wharf_mount::Error::Unsupported { .. }) => 0,
            extents => extents?,
        };
        Ok(Footprint { allocated: space::allocated(&image)?, extents })
    }
}

impl Images {
    /// Creates an empty image. On a copy-on-write filesystem, a thick image that must not share
    /// blocks is set to be overwritten in place.
    fn create(self, image: &Path, shape: Shape) -> Result<File, Error> {
        let file = files::create(image).map_err(Error::file("create image", image))?;
        let in_place = self.0 == BackendKind::ImageCopy && !shape.thin;
        if in_place && clone::is_copy_on_write(image)? {
            clone::overwrite_in_place(&file)?;
        }
        Ok(file)
    }
}

/// Extends an image to its size; for a thick one, also allocates its holes.
fn enlarge(image: &File, shape: Shape) -> Result<(), Error> {
    Ok(space::allocate(image, shape.size, !shape.thin)?)
}

fn open(image: &Path) -> Result<File, Error> {
    files::open(image).map_err(Error::file("open image", image))
}
