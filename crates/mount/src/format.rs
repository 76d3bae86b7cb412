//! Creates filesystems.

use std::{ffi::OsString, os::unix::fs::FileTypeExt, path::Path, time::Duration};

use crate::{
    Error, Filesystem, Result,
    programs::{self, MKFS_EXT4, MKFS_XFS, Outcome, Programs},
};

/// Options of [`format()`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    /// Discard the device first. This frees the blocks of a thin image, and those of a thick one,
    /// too: leave it off for thick images.
    pub discard: bool,
    /// The whole device reads as zeros, as a fresh image does. mkfs and the kernel then need not
    /// write zeros to ext4's inode tables.
    pub zeroed: bool,
    /// Label of the filesystem.
    pub label: Option<String>,
    /// UUID of the filesystem; random if `None`.
    pub uuid: Option<String>,
    /// Folders in which to find `mkfs.*`.
    pub programs: Programs,
}

/// Creates a filesystem on a block device or in an image file, overwriting its content: call
/// [`probe`](crate::probe::probe) first.
///
/// `mkfs` is killed when it exceeds `deadline` or when this process ends; then
/// [wipe](crate::probe::wipe) the device. mkfs.xfs refuses a device that has a signature.
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

/// The smallest device on which the filesystem is useful.
///
/// For ext4 the smallest with a journal and blocks of 4 KiB; mkfs.xfs refuses smaller devices.
pub fn minimum_size(fs: Filesystem) -> u64 {
    match fs {
        Filesystem::Ext4 => 8 << 20,
        Filesystem::Xfs => 300 << 20,
    }
}

fn ext4(options: &FormatOptions, image: bool, zeroed: bool) -> Vec<OsString> {
    // Reserve no blocks for root: the volume belongs to one workload.
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

/// mke2fs before 1.47 does not know the option, and fails before it writes.
fn is_too_old(outcome: &Outcome) -> bool {
    outcome.code() == Some(1) && outcome.output.contains("Bad option(s) specified")
}
