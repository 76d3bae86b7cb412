//! Device nodes of loop devices in `/dev` and their folders in `/sys`.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    io::Errno,
};

use crate::{Error, Result};

/// Major number of loop devices.
const MAJOR: u32 = 7;

const BLOCK: &str = "/sys/block";

/// Lists block devices that have a size.
const PARTITIONS: &str = "/proc/partitions";

pub(super) fn path(number: u32) -> PathBuf {
    format!("/dev/loop{number}").into()
}

/// Creates the node if `/dev` is not the kernel's own, as in many containers.
pub(super) fn ensure(path: &Path, number: u32) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let mode = Mode::RUSR | Mode::WUSR;
    match mknodat(CWD, path, FileType::BlockDevice, mode, makedev(MAJOR, number)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::io("make", path)(errno)),
    }
}

/// Path of the attached image, read without opening the device; `None` if nothing is attached.
pub(super) fn backing(number: u32) -> Option<PathBuf> {
    let file = Path::new(BLOCK).join(format!("loop{number}/loop/backing_file"));
    let mut path = std::fs::read(file).ok()?;
    path.pop_if(|byte| *byte == b'\n');
    Some(OsString::from_vec(path).into())
}

/// Whether the kernel refuses writes to a device.
pub(super) fn is_read_only(number: u32) -> bool {
    let file = Path::new(BLOCK).join(format!("loop{number}/ro"));
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
}

/// Logical block size of a device.
pub(super) fn block_size(number: u32) -> Result<u32> {
    let file = queue(number).join("logical_block_size");
    let text = std::fs::read_to_string(&file).map_err(Error::io("read", &file))?;
    let detail = || format!("expected a number, found {text:?}");
    text.trim().parse().map_err(|_| Error::Malformed { path: file.clone(), detail: detail() })
}

/// Makes a device refuse discards until it is removed.
pub(super) fn refuse_discards(number: u32) -> Result<()> {
    let file = queue(number).join("discard_max_bytes");
    std::fs::write(&file, "0").map_err(Error::io("write", &file))
}

/// Whether a device refuses discards that its image's filesystem supports.
pub(super) fn refuses_discards(number: u32) -> bool {
    let bytes = |name| -> Option<u64> {
        std::fs::read_to_string(queue(number).join(name)).ok()?.trim().parse().ok()
    };
    bytes("discard_max_bytes") == Some(0) && bytes("discard_max_hw_bytes") > Some(0)
}

fn queue(number: u32) -> PathBuf {
    Path::new(BLOCK).join(format!("loop{number}/queue"))
}

/// Returns the numbers of attached devices, sorted. A device with an empty image is not among them.
///
/// Reads one file that lists devices with a size. Asking each device takes microseconds for every
/// device that the machine ever had, since the kernel does not remove unused ones.
pub fn attached() -> Result<Vec<u32>> {
    let table = std::fs::read_to_string(PARTITIONS).map_err(Error::io("read", PARTITIONS))?;
    let names = table.lines().filter_map(|line| line.split_whitespace().nth(3));
    let mut numbers: Vec<u32> =
        names.filter_map(|name| name.strip_prefix("loop")?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the numbers of all devices, attached or not.
pub(super) fn all() -> Result<Vec<u32>> {
    let entries = std::fs::read_dir(BLOCK).map_err(Error::io("list", BLOCK))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.strip_prefix("loop")?.parse().ok()).collect())
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV | libc::ENOENT))
}
