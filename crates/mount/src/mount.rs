//! To mount and to unmount, with the kernel's own reason when it refuses.
//!
//! A filesystem is configured, mounted nowhere, and then moved to its place (fsopen, fsconfig,
//! fsmount, move_mount); a bind mount is cloned, made read-only if asked for, and then moved. So
//! nobody ever sees a mount that is not yet as it should be. Kernels without these calls get
//! mount(2). Mounts propagate as those of mount(8) do.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

pub use crate::Filesystem;
use crate::paths::open_handle;
use crate::{Error, Result, mountinfo};

mod flags;
mod legacy;
mod modern;

use flags::Flags;

/// The longest pause between two tries to unmount what is busy.
const LAST_PAUSE: Duration = Duration::from_millis(64);

/// How to mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// The whole filesystem is mounted read-only.
    pub read_only: bool,
    /// Flags as of `mount -o`, each one or several with commas between: of any mount (`noexec`,
    /// `noatime`) or of the filesystem (`nouuid`, `errors=remount-ro`). What only programs read
    /// (`_netdev`, `x-...`) is accepted and ignored.
    pub flags: Vec<String>,
}

/// Mounts the filesystem on `device` at the folder `target`, which must not be a symlink.
///
/// What is already mounted there is covered: ask [`mountinfo::at`] first.
pub fn mount(device: &Path, target: &Path, fs: Filesystem, options: &MountOptions) -> Result<()> {
    let flags = Flags::parse(options)?;
    let point = open_handle(target)?;
    let done = match modern::mount(device, &point, fs, &flags) {
        Err(refusal) if refusal.errno == Errno::NOSYS => {
            legacy::mount(device, &point, fs, &flags).map_err(modern::Refusal::from)
        }
        done => done,
    };
    done.map_err(|refusal| {
        let reason = flags.redact(refusal.reason);
        error(device, target, modern::Refusal { reason, ..refusal })
    })?;
    tracing::debug!(?device, ?target, %fs, "mounted");
    Ok(())
}

/// Mounts the folder `source` at the folder `target` too, or a file or device node at a file; neither may be a symlink.
///
/// What is mounted below `source` does not come along. A read-only bind mount is read-only from its
/// first moment, while `source` stays as it is. It does not keep anyone from writing to a device whose
/// node it shows: for that the device itself has to be read-only.
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

/// Unmounts what is topmost at `target`; false if nothing is, or if there is no `target`.
///
/// [`Error::Busy`] while files below it are in use. That is said only after some tries within an
/// eighth of a second: a program that is being started holds, until it runs, every file
/// that this process had open at that moment, also those closed since.
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

/// Takes what is topmost at `target` out of sight now; it is gone for good when its last user is.
///
/// For what cannot be unmounted otherwise, since its users cannot be stopped. False as for [`unmount`].
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
        // Not a mount point, or one that may not be unmounted: only the table tells.
        Err(Errno::INVAL) if mountinfo::at(target)?.is_none() => Ok(false),
        Err(errno) => Err(Error::io("unmount", target)(errno)),
    }
}

fn error(device: &Path, target: &Path, refusal: modern::Refusal) -> Error {
    Error::Mount {
        device: device.to_owned(),
        target: target.to_owned(),
        reason: refusal.reason,
        source: io::Error::from(refusal.errno),
    }
}

/// A path to what a handle stands for, for calls that take no handles.
fn by_handle(handle: &File) -> PathBuf {
    crate::error::handle(handle)
}
