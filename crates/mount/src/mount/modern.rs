//! The mount calls of Linux 5.2 and later.

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
        fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
    },
};

use super::flags::Flags;
use crate::{Filesystem, sys};

/// The kernel's error and message.
pub(super) struct MountFailure {
    pub(super) errno: Errno,
    pub(super) reason: String,
}

impl From<Errno> for MountFailure {
    fn from(errno: Errno) -> Self {
        Self { errno, reason: String::new() }
    }
}

pub(super) fn mount(
    device: &Path,
    point: &File,
    fs: Filesystem,
    flags: &Flags,
) -> Result<(), MountFailure> {
    let context = fsopen(fs.kernel_name(), FsOpenFlags::FSOPEN_CLOEXEC)?;
    let mount = configure(&context, device, flags)
        .map_err(|errno| MountFailure { errno, reason: reason(&context) })?;
    place(&mount, point)?;
    Ok(())
}

pub(super) fn bind(from: &File, point: &File, read_only: bool) -> Result<(), Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let mount = open_tree(from, "", flags)?;
    if read_only {
        sys::mount::set_read_only(&mount)?;
    }
    place(&mount, point)
}

fn configure(context: &OwnedFd, device: &Path, flags: &Flags) -> Result<OwnedFd, Errno> {
    fsconfig_set_string(context, "source", device)?;
    for flag in &flags.superblock {
        fsconfig_set_flag(context, *flag)?;
    }
    for (key, value) in &flags.parameters {
        match value {
            Some(value) => fsconfig_set_string(context, key.as_str(), value.as_str())?,
            None => fsconfig_set_flag(context, key.as_str())?,
        }
    }
    fsconfig_create(context)?;
    let attributes = MountAttrFlags::from_bits_retain(flags.attributes);
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn place(mount: &impl AsFd, point: &File) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", point, "", flags)
}

/// Reads the kernel's messages from a context: one per read, each prefixed with `e`, `w` or `i`.
fn reason(context: &OwnedFd) -> String {
    let mut messages = Vec::new();
    let mut buffer = [0; 512];
    while let Ok(length @ 1..) = rustix::io::read(context, &mut buffer) {
        let message = String::from_utf8_lossy(&buffer[..length]);
        let text = message.strip_prefix("e ").or_else(|| message.strip_prefix("w "));
        messages.extend(text.map(|text| text.trim().to_owned()));
    }
    messages.join("; ")
}
