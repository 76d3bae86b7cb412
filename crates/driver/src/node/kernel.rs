//! The kernel's loop devices and mounts, read once for many volumes.

use std::path::Path;

use wharf_mount::{
    loopdev::{self, Loop},
    mountinfo::{self, Mount},
};

use crate::{devices::identity, error::Error};

/// Loop devices and mounts at one moment.
#[derive(Debug)]
pub(super) struct KernelState {
    loops: Vec<Loop>,
    mounts: Vec<Mount>,
}

impl KernelState {
    /// Lists all loop devices. Does not wait for network filesystems unless `concerns` returns true
    /// for the device's file.
    pub(super) fn read(concerns: impl Fn(&Path) -> bool) -> Result<Self, Error> {
        let loops =
            loopdev::list_asking(concerns)?.into_iter().map(|status| status.loopdev).collect();
        Ok(Self { loops, mounts: mountinfo::table()? })
    }

    /// Returns the loop devices of an image.
    pub(super) fn loops_of(&self, image: &Path) -> Vec<&Loop> {
        let Ok(Some(image)) = identity(image) else { return Vec::new() };
        let same = |device: &&Loop| device.identity() == image;
        self.loops.iter().filter(same).collect()
    }

    /// Whether a device, or a filesystem on it, is mounted at another place than `path`.
    pub(super) fn mounted_besides(&self, device: &Loop, path: &Path) -> Result<bool, Error> {
        let number = loopdev::device_number(&device.path)?;
        let node = Path::new("/").join(device.path.file_name().unwrap_or_default());
        let of_device = |mount: &&Mount| mount.device == number || mount.root == node;
        Ok(self.mounts.iter().filter(of_device).any(|mount| mount.point != path))
    }

    /// Returns the topmost mount at a path.
    pub(super) fn mount_at(&self, path: &Path) -> Option<&Mount> {
        // The table has paths without symlinks.
        let (folder, name) = (path.parent()?.canonicalize().ok()?, path.file_name()?);
        let point = folder.join(name);
        self.mounts.iter().rfind(|mount| mount.point == point)
    }
}
