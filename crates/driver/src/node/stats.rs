//! Usage of volumes.

use std::path::Path;

use wharf_mount::{
    mountinfo,
    space::{self, Usage},
};

use super::NodeVolumes;
use crate::{
    error::Error,
    record::{Access, Volume},
};

/// Usage of a volume at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stats {
    /// The size of a device.
    Device {
        /// Size in bytes.
        size: u64,
    },
    /// Usage of a filesystem.
    Filesystem(Usage),
}

impl NodeVolumes {
    /// Returns the usage of a volume at a path where it is staged or published.
    ///
    /// # Errors
    /// If the volume is not at the path.
    pub fn stats(&self, id: &str, path: &Path) -> Result<Stats, Error> {
        let volume = self.pool.whole_volume(id)?;
        let access = self.access_at(&volume, path)?;
        match access {
            Access::Block => {
                let device =
                    self.pool.devices().find(&self.pool.image(&volume))?.into_iter().next();
                Ok(Stats::Device { size: device.ok_or_else(|| elsewhere(path))?.size()? })
            }
            Access::Mount { .. } => Ok(Stats::Filesystem(space::usage(path)?)),
        }
    }

    /// Grows a volume's filesystem to its device, and first the device to `to` bytes (whole blocks)
    /// if it is smaller. Returns the volume's size.
    ///
    /// # Errors
    /// If the volume is not at the path, is smaller than required, or its filesystem cannot grow
    /// while mounted.
    pub fn expand(&self, id: &str, path: &Path, to: u64) -> Result<u64, Error> {
        let volume = self.pool.whole_volume(id)?;
        let access = self.access_at(&volume, path)?;
        let volume = if to > volume.capacity {
            // The node owns the pool, so it can do the controller's part, too.
            self.pool.expand_volume(id, to)?
        } else {
            volume
        };
        if let Access::Mount { .. } = access
            && let crate::record::Content::Filesystem(filesystem) = volume.content
        {
            for device in self.pool.devices().find(&self.pool.image(&volume))? {
                self.grow_mounted(filesystem, &device, path)?;
            }
        }
        self.pool.reach(crate::points::Point::NodeExpandGrown)?;
        Ok(volume.capacity)
    }

    /// Returns how the volume is used at a path.
    fn access_at(&self, volume: &Volume, path: &Path) -> Result<Access, Error> {
        let staged =
            volume.stage.as_ref().filter(|stage| stage.path == path).map(|stage| &stage.usage);
        let published = volume.publications.get(path).map(|publication| &publication.usage);
        let usage = staged.or(published).ok_or_else(|| elsewhere(path))?;
        // Without this check, a record without its mount would report the node's own disk.
        if published.is_some() || matches!(usage.access, Access::Mount { .. }) {
            mountinfo::root_at(path)?.ok_or_else(|| elsewhere(path))?;
        }
        Ok(usage.access.clone())
    }
}

fn elsewhere(path: &Path) -> Error {
    Error::NotFound { kind: "volume at that path", id: path.display().to_string() }
}
