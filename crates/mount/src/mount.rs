//! Mounts and unmounts filesystems.
//!
//! A filesystem is configured and created detached, then moved to its place (fsopen, fsconfig,
//! fsmount, move_mount). A bind mount is cloned, made read-only if requested, and then moved. So no
//! process sees a mount that is not fully configured. Kernels without these calls use mount(2).
//! Mounts propagate as with mount(8).

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{io::Errno, mount::UnmountFlags};

pub use crate::Filesystem;
use crate::{Error, Result, mountinfo, paths::open_handle};

mod flags;
mod legacy;
mod modern;

use flags::Flags;

/// Longest pause between two attempts to unmount a busy filesystem.
const LAST_PAUSE: Duration = Duration::from_millis(64);

/// Options of [`mount`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Mount the whole filesystem read-only.
    pub read_only: bool,
    /// Flags as for `mount -o`, one or several (separated by commas) per entry: generic ones
    /// (`noexec`, `noatime`) or of the filesystem (`nouuid`, `errors=remount-ro`). Flags for
    /// user-space programs (`_netdev`, `x-...`) are ignored.
    pub flags: Vec<String>,
}

/// Mounts the filesystem on `device` at the folder `target`, which must not be a symlink.
///
/// An existing mount there is covered: check [`mountinfo::at`] first.
pub fn mount(device: &Path, target: &Path, fs: Filesystem, options: &MountOptions) -> Result<()> {
    let flags = Flags::parse(options)?;
    let point = open_handle(target)?;
    let done = match modern::mount(device, &point, fs, &flags) {
        Err(refusal) if refusal.errno == Errno::NOSYS => {
            legacy::mount(device, &point, fs, &flags).map_err(modern::MountFailure::from)
        }
        done => done,
    };
    done.map_err(|refusal| {
        let reason = flags.redact(refusal.reason);
        error(device, target, modern::MountFailure { reason, ..refusal })
    })?;
    tracing::debug!(?device, ?target, %fs, "mounted");
    Ok(())
}

/// Bind-mounts the folder `source` at the folder `target`, or a file or device node at a file.
/// Neither may be a symlink.
///
/// Mounts below `source` are not included. A read-only bind mount is read-only from the start, and
/// `source` is not changed. It does not prevent writes to a block device through its node: for that
/// the device itself must be read-only.
pub fn bind(source: &Path, target: &Path, read_only: bool) -> Result<()> {
    let (from, point) = (open_handle(source)?, open_handle(target)?);
    let done = match modern::bind(&from, &point, read_only) {
        Err(Errno::NOSYS) => legacy::bind(&from, &point, target, read_only),
        done => done,
    };
    done.map_err(|errno| error(source, target, errno.into()))?;
    tracing::debug!(?source, ?target, read_only, "bound");
    Ok(())
}

/// Unmounts the topmost mount at `target`. Returns false if nothing is mounted there or `target`
/// does not exist.
///
/// Fails with [`Error::Busy`] while files below it are in use, after retrying for an eighth of a
/// second: between fork and exec, a child holds every file that this process had open at the fork,
/// even if it was closed since.
pub fn unmount(target: &Path) -> Result<bool> {
    let mut pause = Duration::from_millis(1);
    loop {
        match unmount_with(target, UnmountFlags::NOFOLLOW) {
            Err(Error::Busy { .. }) if pause <= LAST_PAUSE => std::thread::park_timeout(pause),
            answer => return answer,
        }
        pause *= 2;
    }
}

/// Detaches the topmost mount at `target` from the tree; the kernel unmounts it when its last user
/// is gone.
///
/// For a mount whose users cannot be stopped. Returns false as [`unmount`] does.
pub fn lazy_unmount(target: &Path) -> Result<bool> {
    unmount_with(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
}

fn unmount_with(target: &Path, flags: UnmountFlags) -> Result<bool> {
    match rustix::mount::unmount(target, flags) {
        Ok(()) => {
            tracing::debug!(?target, "unmounted");
            Ok(true)
        }
        Err(Errno::BUSY) => Err(Error::Busy { operation: "unmount", path: target.to_owned() }),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        // Either nothing is mounted there or it must not be unmounted: check the table.
        Err(Errno::INVAL) if mountinfo::at(target)?.is_none() => Ok(false),
        Err(errno) => Err(Error::io("unmount", target)(errno)),
    }
}

fn error(device: &Path, target: &Path, refusal: modern::MountFailure) -> Error {
    Error::Mount {
        device: device.to_owned(),
        target: target.to_owned(),
        reason: refusal.reason,
        source: io::Error::from(refusal.errno),
    }
}

/// A path of an open handle, for calls that take only paths.
fn by_handle(handle: &File) -> PathBuf {
    crate::error::handle(handle)
}
