//! Grows a filesystem to the size of its device.

use std::{fs::File, os::unix::fs::MetadataExt, path::Path, time::Duration};

use rustix::{io::Errno, thread::CapabilitySet};

use crate::{
    Error, Filesystem, Result,
    check::{CheckOutcome, e2fsck},
    probe::{self, Signature},
    programs::{E2FSCK, Outcome, RESIZE2FS},
    space, sys, undo,
};

/// XFS adds no allocation group of fewer blocks.
const XFS_SMALLEST_GROUP: u64 = 64;

/// Grows the filesystem mounted at `mount_point` to the size of its device; a no-op if it has that
/// size.
///
/// For ext4 the kernel requires `CAP_SYS_RESOURCE`. Without it the call fails with
/// [`Error::NotPermitted`], and the filesystem can only be [grown offline](grow_offline_ext4).
pub fn grow_mounted(fs: Filesystem, mount_point: &Path) -> Result<()> {
    let root = File::open(mount_point).map_err(Error::io("open", mount_point))?;
    let size = size_below(&root, mount_point)?;
    let grown = match fs {
        Filesystem::Ext4 => grow_ext4(&root, size),
        Filesystem::Xfs => grow_xfs(&root, size),
    };
    grown.map_err(|errno| match errno {
        Errno::PERM => Error::NotPermitted {
            operation: "grow the mounted filesystem at",
            path: mount_point.to_owned(),
            capability: match fs {
                Filesystem::Ext4 => "CAP_SYS_RESOURCE",
                Filesystem::Xfs => "CAP_SYS_ADMIN",
            },
            source: errno.into(),
        },
        errno => Error::io("grow the filesystem at", mount_point)(errno),
    })
}

/// Whether this process may grow a mounted ext4. Otherwise ext4 must be [grown
/// offline](grow_offline_ext4).
pub fn ext4_grows_mounted() -> bool {
    let own = rustix::thread::capabilities(None);
    own.is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_RESOURCE))
}

/// Grows the ext4 in `device`, a device or image that is not mounted, to the size of the device.
///
/// Checks the filesystem first, as `resize2fs` requires; damage that needs a person's decision is
/// an error. `deadline` applies to each of the two programs. With an `undo` file a growth that is
/// killed can be [undone](crate::undo).
pub fn grow_offline_ext4(device: &Path, undo: Option<&Path>, deadline: Duration) -> Result<()> {
    let checked = undo::run(E2FSCK, &["-f", "-p"], device, undo, deadline, e2fsck)?;
    if let CheckOutcome::Damaged(report) = checked {
        let detail = format!("e2fsck cannot repair it without a decision: {report}");
        return Err(Error::Malformed { path: device.to_owned(), detail });
    }
    undo::run(RESIZE2FS, &[], device, undo, deadline, Outcome::success)
}

/// Whether the filesystem fills `device`, a device or image, according to its superblock.
///
/// Call it only while the filesystem is not mounted: XFS does not write the superblock of a mounted
/// filesystem at once.
pub fn fits(fs: Filesystem, device: &Path) -> Result<bool> {
    let file = File::open(device).map_err(Error::io("open", device))?;
    let size = space::size(&file)?;
    match (fs, probe::probe(&file)?) {
        (Filesystem::Ext4, Signature::Ext4(state)) => {
            Ok(state.largest_leftover() > size.saturating_sub(state.size()))
        }
        (Filesystem::Xfs, Signature::Xfs(state)) => {
            let left = size.saturating_sub(state.size);
            Ok(left / u64::from(state.block_size).max(1) < XFS_SMALLEST_GROUP)
        }
        (_, found) => {
            let detail = format!("expected {fs}, found {found}");
            Err(Error::Malformed { path: device.to_owned(), detail })
        }
    }
}

/// The kernel rounds the size down to a multiple that its block groups allow.
fn grow_ext4(root: &File, size: u64) -> rustix::io::Result<()> {
    let stat = rustix::fs::fstatfs(root)?;
    let block_size = u64::try_from(stat.f_bsize).unwrap_or(4096).max(1);
    sys::fs::ext4_resize(root, size / block_size)
}

fn grow_xfs(root: &File, size: u64) -> rustix::io::Result<()> {
    let geometry = sys::fs::xfs_geometry(root)?;
    let blocks = size / u64::from(geometry.block_size).max(1);
    if blocks < geometry.data_blocks + XFS_SMALLEST_GROUP {
        return Ok(());
    }
    sys::fs::xfs_grow(root, blocks, geometry.inode_percent)
}

/// Returns the size of the device below a mounted filesystem without opening the device.
fn size_below(root: &File, mount_point: &Path) -> Result<u64> {
    let device = root.metadata().map_err(Error::io("look at", mount_point))?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/dev/block/{major}:{minor}/size");
    let sectors = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    let sectors: u64 = sectors.trim().parse().map_err(|_| Error::Malformed {
        path: path.clone().into(),
        detail: format!("expected a number of sectors, found {sectors:?}"),
    })?;
    Ok(sectors * 512)
}
