//! Mounts in a folder and loop devices on its files, as the kernel reports them.

use std::path::Path;

use anyhow::bail;
use wharf_mount::{
    loopdev::{self, LoopStatus},
    mount,
    mountinfo::{self, Mount},
};

/// Unmounts everything in `folder`, and detaches every loop device of its files.
pub(super) fn clear(folder: &Path) -> anyhow::Result<()> {
    // The last mount is on top.
    for mount in mounts(folder)?.iter().rev() {
        mount::unmount(&mount.point)?;
    }
    for device in loops(folder)? {
        loopdev::detach(&device.loopdev)?;
    }
    Ok(())
}

/// Fails if anything is mounted in `folder` or attached from there.
pub(super) fn check(folder: &Path) -> anyhow::Result<()> {
    let mounts = mounts(folder)?.into_iter().map(|mount| mount.point);
    let devices = loops(folder)?.into_iter().map(|device| device.loopdev.path);
    let left: Vec<_> = mounts.chain(devices).map(|path| path.display().to_string()).collect();
    if !left.is_empty() {
        bail!("left behind, to be unmounted or detached by hand: {}", left.join(", "));
    }
    Ok(())
}

fn mounts(folder: &Path) -> anyhow::Result<Vec<Mount>> {
    let mut mounts = mountinfo::table()?;
    mounts.retain(|mount| mount.point.starts_with(folder));
    Ok(mounts)
}

fn loops(folder: &Path) -> anyhow::Result<Vec<LoopStatus>> {
    let mut loops = loopdev::list()?;
    // The kernel removes a device that is being detached when its last user, such as udev, closes
    // it.
    loops.retain(|device| device.loopdev.backing.starts_with(folder) && !device.loopdev.clearing);
    Ok(loops)
}
