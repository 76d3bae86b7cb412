//! Reserves: space held for a copy from before it is made until it is unshared.
//!
//! A reserve is a file that has blocks exactly where the copy shares blocks with other images.
//! These blocks move into the copy, from the end of the file to its start, and the reserve is
//! truncated step by step: its length is the progress. So no other writer can take the space
//! meanwhile, however full the disk is.

use std::{fs::File, io::ErrorKind, path::Path};

use wharf_mount::{space, sync, unshare};

use super::{Pool, recover::entries};
use crate::{error::Error, files, points::Point, record::Blocks};

impl Pool {
    /// Allocates space for everything that a copy of `size` bytes can share, before the copy is
    /// made.
    ///
    /// # Errors
    /// If the disk is full; then nothing stays allocated.
    pub(super) fn make_reserve(&self, image: &str, size: u64) -> Result<(), Error> {
        self.fill_reserve(image, |file| Ok(space::allocate(file, size, true)?))?;
        self.reach(Point::ReserveMade)
    }

    /// Frees the part of the reserve that the copy at `path` does not need. Returns the copy's
    /// state.
    pub(super) fn trim_reserve(&self, image: &str, path: &Path) -> Result<Blocks, Error> {
        let copy = files::open(path).map_err(Error::file("open image", path))?;
        let shared = unshare::shared(&copy, 0..space::size(&copy)?)?;
        let blocks = match unshare::length(&shared) {
            0 => {
                self.remove_reserve(image)?;
                Blocks::Own
            }
            bytes => {
                let (reserve, path) = self.open_reserve(image)?;
                unshare::keep_only(&reserve, &shared)?;
                reserve.sync_all().map_err(Error::file("flush reserve", path))?;
                Blocks::Unsharing { bytes }
            }
        };
        self.reach(Point::ReserveTrimmed)?;
        Ok(blocks)
    }

    /// Allocates a reserve for an existing copy. Returns the shared bytes; if there are none, no
    /// reserve is made.
    ///
    /// # Errors
    /// If the disk is full; then nothing stays allocated.
    pub(super) fn reserve_shared(&self, image: &str, copy: &File) -> Result<u64, Error> {
        let shared = unshare::shared(copy, 0..space::size(copy)?)?;
        if shared.is_empty() {
            self.remove_reserve(image)?;
            return Ok(0);
        }
        self.fill_reserve(image, |file| Ok(unshare::allocate(file, &shared)?))?;
        let (reserve, path) = self.open_reserve(image)?;
        reserve.sync_all().map_err(Error::file("flush reserve", path))?;
        sync::folder(&self.layout.reserves())?;
        self.reach(Point::ReserveMade)?;
        Ok(unshare::length(&shared))
    }

    /// Removes the reserve of an image, if any, and frees its space at once.
    pub(super) fn remove_reserve(&self, image: &str) -> Result<(), Error> {
        for path in [self.layout.reserve(image), self.layout.pin(image)] {
            match files::free(&path) {
                Err(error) if error.kind() == ErrorKind::IsADirectory => self.clear_away(&path),
                freed => freed.map_err(Error::file("remove reserve", path))?,
            }
        }
        Ok(())
    }

    /// Removes reserves of images that are not being unshared.
    pub(super) fn remove_stray_reserves(&self) -> Result<(), Error> {
        let wanted: Vec<_> = self.store.read(|state| {
            let volumes = state.volumes.iter().filter(|it| it.blocks.is_unsharing());
            let volumes = volumes.filter(|it| it.is_whole()).map(|it| it.image.clone());
            let snapshots = state.snapshots.iter().filter(|it| it.blocks.is_unsharing());
            volumes.chain(snapshots.map(|it| it.image.clone())).collect()
        });
        for path in entries(&self.layout.reserves())? {
            let image = path.file_stem().unwrap_or_default().to_string_lossy();
            if !wanted.iter().any(|it| *it == image) {
                self.clear_away(&path);
            }
        }
        Ok(())
    }

    /// Bytes of an image that are still to be unshared; 0 without a reserve.
    pub(super) fn reserve_left(&self, image: &str) -> u64 {
        let reserve = files::open(&self.layout.reserve(image));
        reserve.ok().and_then(|file| space::allocated(&file).ok()).unwrap_or(0)
    }

    pub(super) fn open_reserve(&self, image: &str) -> Result<(File, std::path::PathBuf), Error> {
        let path = self.layout.reserve(image);
        let file = files::open_to_write(&path);
        Ok((file.map_err(Error::file("open reserve", &path))?, path))
    }

    fn fill_reserve(
        &self,
        image: &str,
        fill: impl FnOnce(&File) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.remove_reserve(image)?;
        let create = |path: &Path| files::create(path).map_err(Error::file("create reserve", path));
        // Create the pin now, too: a full disk accepts no new file.
        let made = create(&self.layout.pin(image))
            .and_then(|_| create(&self.layout.reserve(image)))
            .and_then(|file| fill(&file));
        made.inspect_err(|_| drop(self.remove_reserve(image)))
    }
}
