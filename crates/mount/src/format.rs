//! To make a filesystem.

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use crate::programs::{self, MKFS_EXT4, MKFS_XFS, Outcome, Programs};
use crate::{Error, Filesystem, Result};

/// How to make it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    /// First tell the device that nothing of it is needed. Gives back the space of a thin image, and
    /// that of a thick one too: leave it off there.
    pub discard: bool,
    /// The device reads as zeros everywhere, as a fresh image does. Spares ext4 to write, or to have the
    /// kernel write after the mount, zeros for all its inodes.
    pub zeroed: bool,
    /// The filesystem's name.
    pub label: Option<String>,
    /// The filesystem's UUID; a random one if `None`.
    pub uuid: Option<String>,
    /// Where to look for `mkfs.*`.
    pub programs: Programs,
}

/// Makes a filesystem on a block device or in an image file, whatever is there now: ask
/// [`probe`](crate::probe::probe) first.
///
/// `mkfs` is killed when it takes longer than `deadline`, and dies with this process; what it leaves
/// behind has to be [wiped](crate::probe::wipe). mkfs.xfs refuses a device with a signature on it.
pub fn format(
    fs: Filesystem,
    device_or_image: &Path,
    options: &FormatOptions,
    deadline: Duration,
) -> Result<()> {
    let metadata = device_or_image.metadata().map_err(Error::io("look at", device_or_image))?;
    let image = !metadata.file_type().is_block_device();
    let make = |program, arguments: &[OsString]| {
        programs::run(&options.programs, program, arguments, device_or_image, deadline)
    };
    match fs {
        Filesystem::Ext4 => {
            let outcome = make(MKFS_EXT4, &ext4(options, image, options.zeroed))?;
            if options.zeroed && is_too_old(&outcome) {
                return make(MKFS_EXT4, &ext4(options, image, false))?.success();
            }
            outcome.success()
        }
        Filesystem::Xfs => make(MKFS_XFS, &xfs(options))?.success(),
    }
}

/// The smallest device that the filesystem can be made on in a useful way.
///
/// For ext4 that is one with room for a journal in blocks of 4 KiB; mkfs.xfs refuses anything smaller.
pub fn minimum_size(fs: Filesystem) -> u64 {
    match fs {
        Filesystem::Ext4 => 8 << 20,
        Filesystem::Xfs => 300 << 20,
    }
}

fn ext4(options: &FormatOptions, image: bool, zeroed: bool) -> Vec<OsString> {
    // No blocks for root alone: the volume belongs to one workload.
    let mut arguments = vec!["-q".into(), "-m".into(), "0".into()];
    if image {
        arguments.push("-F".into());
    }
    let mut extended = vec![if options.discard { "discard" } else { "nodiscard" }];
    if zeroed {
        extended.push("assume_storage_prezeroed=1");
    }
    arguments.extend(["-E".into(), extended.join(",").into()]);
    named(&mut arguments, "-L", options.label.as_deref());
    named(&mut arguments, "-U", options.uuid.as_deref());
    arguments
}

fn xfs(options: &FormatOptions) -> Vec<OsString> {
    let mut arguments = vec!["-q".into()];
    if !options.discard {
        arguments.push("-K".into());
    }
    named(&mut arguments, "-L", options.label.as_deref());
    let uuid = options.uuid.as_ref().map(|uuid| format!("uuid={uuid}"));
    named(&mut arguments, "-m", uuid.as_deref());
    arguments
}

fn named(arguments: &mut Vec<OsString>, flag: &str, value: Option<&str>) {
    arguments.extend(value.into_iter().flat_map(|value| [flag.into(), value.into()]));
}

/// mke2fs before 1.47 does not know the option, and says so before it writes.
fn is_too_old(outcome: &Outcome) -> bool {
    outcome.code() == Some(1) && outcome.output.contains("Bad option(s) specified")
}
