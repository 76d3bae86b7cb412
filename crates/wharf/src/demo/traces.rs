//! What the kernel knows of a folder: mounts in it, and loop devices on its files.

use std::path::Path;

use anyhow::bail;
use wharf_mount::{
    loopdev::{self, LoopStatus},
    mount,
    mountinfo::{self, Mount},
};

/// Undoes every mount in `folder` and detaches every loop device of its files, whoever left them.
pub(super) fn clear(folder: &Path) -> anyhow::Result<()> {
    // What was mounted last is on top.
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
    // One that is being detached is gone with its last user, such as a udev that still looks at it.
    loops.retain(|device| device.loopdev.backing.starts_with(folder) && !device.loopdev.clearing);
    Ok(loops)
}
