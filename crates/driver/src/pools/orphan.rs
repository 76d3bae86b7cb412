//! Teardown of volumes that no served pool knows: their pool is missing, or they are gone.
//!
//! A pod must not wait for a disk that may never come back. The kernel knows what is mounted, and the path of a loop device's
//! image tells whether it is one of a pool of this driver. When the pool is served again, its start finds that the volume is
//! no longer mounted.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use wharf_mount::{
    loopdev::{self, HeldLoop, Loop},
    mount, mountinfo, paths,
};

use super::Pools;
use crate::{devices::shown_here, error::Error, node::remove_target, pool::Layout, pool_image};

impl Pools {
    /// Unmounts what shows an image of a pool of this driver from a target, and removes the target.
    ///
    /// # Errors
    /// When something else is mounted there.
    pub fn unpublish_orphan(&self, target: &Path) -> Result<(), Error> {
        self.unmount_orphan(target)?;
        remove_target(target)
    }

    /// Unmounts what shows an image of a pool of this driver from a staging path.
    ///
    /// # Errors
    /// When something else is mounted there.
    pub fn unstage_orphan(&self, path: &Path) -> Result<(), Error> {
        self.unmount_orphan(path)
    }

    /// The images of a pool folder that are attached to a loop device.
    pub(super) fn attached_below(folder: &Path) -> Result<Vec<Loop>, Error> {
        let folders = image_folders(folder);
        let all = loopdev::list()?.into_iter().map(|status| status.loopdev);
        let is_own = |device: &Loop| folders.iter().any(|it| device.backing.starts_with(it));
        Ok(all.filter(is_own).collect())
    }

    fn unmount_orphan(&self, path: &Path) -> Result<(), Error> {
        paths::refuse_symlinks_below(&self.options.node.kubelet_root, path)?;
        let mut devices = Vec::new();
        while let Some(root) = mountinfo::root_at(path)? {
            let mut shown = None;
            for device in self.attached_images()? {
                if root.shows(device.device_number()?) {
                    shown = Some(device);
                }
            }
            let Some(device) = shown else {
                return Err(Error::Precondition(format!(
                    "{} is a mount of something else than a volume of this driver: unmount it by hand",
                    path.display()
                )));
            };
            mount::unmount(path)?;
            tracing::warn!(path = %path.display(), device = %device.path.display(), "unmounted a volume whose pool is not served");
            devices.push(device);
        }
        for device in devices {
            unstage_inline(&device)?;
            if !shown_here(&device)? {
                detach(device)?;
            }
        }
        Ok(())
    }

    /// The loop devices of images of all pools that are configured or noted.
    fn attached_images(&self) -> Result<Vec<HeldLoop>, Error> {
        let folders: BTreeSet<PathBuf> =
            self.status().into_iter().map(|pool| pool.folder).collect();
        let mut held = Vec::new();
        for folder in folders {
            for device in Self::attached_below(&folder)? {
                let backing = Some(device.backing.as_path());
                held.extend(HeldLoop::open(device.number, device.identity(), backing)?);
            }
        }
        Ok(held)
    }
}

/// Where the kernel sees images of the pool in a folder.
fn image_folders(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let inside = pool_image::mount_point(&folder);
    vec![Layout::new(folder).volumes(), Layout::new(inside).volumes()]
}

/// Unmounts an inline volume from its pool's own staging folder, if it is mounted nowhere else: nobody else unstages it.
fn unstage_inline(device: &HeldLoop) -> Result<(), Error> {
    let pool = device.backing.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let staging = Layout::new(pool)
        .ephemeral(&device.backing.file_stem().unwrap_or_default().to_string_lossy());
    let mounts = mountinfo::of_device(device.device_number()?)?;
    if mounts.iter().all(|mount| mount.point == staging) {
        for mount in &mounts {
            mount::unmount(&mount.point)?;
        }
    }
    Ok(())
}

fn detach(device: HeldLoop) -> Result<(), Error> {
    match loopdev::detach(&device.into_loop()) {
        Err(wharf_mount::Error::Busy { path, .. }) => {
            tracing::warn!(device = %path.display(), "device is held by others, detached when they close it");
            Ok(())
        }
        done => Ok(done?),
    }
}
