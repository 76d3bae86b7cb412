//! What the kernel knows, looked at once for many volumes.

use std::path::Path;

use wharf_mount::loopdev::{self, Loop};
use wharf_mount::mountinfo::{self, Mount};

use crate::{devices::identity, error::Error};

/// Loop devices and mounts at one moment.
#[derive(Debug)]
pub(super) struct Kernel {
    loops: Vec<Loop>,
    mounts: Vec<Mount>,
}

impl Kernel {
    /// Looks at all loop devices. Those on network disks whose file does not `concern` the caller are not waited for.
    pub(super) fn look(concerns: impl Fn(&Path) -> bool) -> Result<Self, Error> {
        let loops =
            loopdev::list_asking(concerns)?.into_iter().map(|status| status.loopdev).collect();
        Ok(Self { loops, mounts: mountinfo::table()? })
    }

    /// The loop devices of an image.
    pub(super) fn loops_of(&self, image: &Path) -> Vec<&Loop> {
        let Ok(Some(image)) = identity(image) else { return Vec::new() };
        let same = |device: &&Loop| device.identity() == image;
        self.loops.iter().filter(same).collect()
    }

    /// Whether a device, or a filesystem on it, is mounted anywhere but at `path`.
    pub(super) fn mounted_besides(&self, device: &Loop, path: &Path) -> Result<bool, Error> {
        let number = loopdev::device_number(&device.path)?;
        let node = Path::new("/").join(device.path.file_name().unwrap_or_default());
        let of_device = |mount: &&Mount| mount.device == number || mount.root == node;
        Ok(self.mounts.iter().filter(of_device).any(|mount| mount.point != path))
    }

    /// The topmost mount at a path.
    pub(super) fn mount_at(&self, path: &Path) -> Option<&Mount> {
        // The table has the path without symlinks.
        let (folder, name) = (path.parent()?.canonicalize().ok()?, path.file_name()?);
        let point = folder.join(name);
        self.mounts.iter().rfind(|mount| mount.point == point)
    }
}
