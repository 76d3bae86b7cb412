//! Image files as block devices.
//!
//! Loop devices are shared by the whole machine, and the kernel reuses their numbers at once:
//! between a look-up and an action another program may have attached its own file under the same
//! number. A [`Loop`] therefore carries the identity of its image, and [`detach()`] acts only on
//! that image.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::{Error, Result, mountinfo::RemoteMounts, sys};

mod detach;
mod held;
mod node;
mod refusing;

pub use detach::detach;
pub use held::HeldLoop;
pub use node::attached;
pub use refusing::{refusing_discards, remove_if_refusing_discards};

const CONTROL: &str = "/dev/loop-control";

/// Maximum number of attempts when other programs take the free device first.
const MAX_ATTEMPTS: usize = 64;

/// A loop device with an image attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Path of the device, `/dev/loop7`.
    pub path: PathBuf,
    /// Number of the device, 7.
    pub number: u32,
    /// Device number of the filesystem that holds the image, as in `st_dev`.
    pub device: u64,
    /// Inode of the image.
    pub inode: u64,
    /// Path of the image when it was attached; the kernel appends ` (deleted)` for an unlinked
    /// image.
    pub backing: PathBuf,
    /// Whether the kernel refuses writes.
    pub read_only: bool,
    /// Whether the device bypasses the page cache of the image.
    pub direct_io: bool,
    /// Whether the device is being detached: the kernel detaches it when its last user in any mount
    /// namespace closes it. Until then its filesystem may still be written to.
    pub clearing: bool,
    /// Whether the device shows only a part of the image: it has an offset or a size limit.
    pub partial: bool,
}

impl Loop {
    /// Device number and inode of the image.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// The kernel's description of a loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopStatus {
    /// The device. If the image's disk does not respond, device number and inode are 0, and only
    /// the path is known.
    pub loopdev: Loop,
    /// Size limit of the device in bytes; 0 means the size of the image.
    pub size_limit: u64,
    /// Offset of the device in the image.
    pub offset: u64,
}

/// Options of [`attach`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Bypass the page cache if the image and its filesystem allow it.
    pub direct_io: bool,
    /// Logical block size of the device; `None` leaves the choice to the kernel.
    pub block_size: Option<u32>,
    /// Refuse discards, which would free blocks of the image.
    pub refuse_discards: bool,
}

/// Attaches `image`, which must be open for writing unless the options say `read_only`.
///
/// [`Loop::direct_io`] says whether requested direct I/O is in effect. The device stays attached
/// until it is [detached](detach()), even after this process ends.
pub fn attach(image: &File, options: &LoopOptions) -> Result<HeldLoop> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(no_device)?;
    for _ in 0..MAX_ATTEMPTS {
        let number = sys::loops::free(&control).map_err(|errno| no_device(errno.into()))?;
        let path = node::path(number);
        node::ensure(&path, number)?;
        let device = match open(&path, options.read_only) {
            // Another program took the device meanwhile.
            Err(error)
                if matches!(error.errno(), Some(libc::ENXIO | libc::ENODEV | libc::ENOENT)) =>
            {
                continue;
            }
            device => device?,
        };
        match configure(&device, image, options) {
            Ok(()) => {
                let held = read_back(device, number, path, image)?;
                if options.refuse_discards {
                    held.refuse_discards()?;
                } else if node::refuses_discards(number) {
                    // A device that refuses discards keeps doing so until it is removed. `detach`
                    // removes it, but may have been interrupted.
                    detach(&held.into_loop())?;
                    continue;
                }
                return Ok(held);
            }
            Err(Errno::BUSY) => continue,
            Err(errno) => return Err(Error::file("attach a loop device to", image)(errno)),
        }
    }
    Err(Error::NoLoopDevice { source: Errno::BUSY.into() })
}

/// Returns the devices to which the file with this device number and inode is attached.
pub fn find(device: u64, inode: u64) -> Result<Vec<Loop>> {
    let loops = list()?.into_iter().map(|status| status.loopdev);
    Ok(loops.filter(|found| (found.device, found.inode) == (device, inode)).collect())
}

/// Returns all attached loop devices.
///
/// Opens each device for a moment and waits for the filesystem of its image.
pub fn list() -> Result<Vec<LoopStatus>> {
    list_asking(|_| true)
}

/// Like [`list`], but does not wait for the network filesystems of other programs: a device whose
/// image is on one is only asked if `concerns` returns true for the image's path. For other such
/// devices only the path is known, as for images on a disk that does not respond.
pub fn list_asking(concerns: impl Fn(&Path) -> bool) -> Result<Vec<LoopStatus>> {
    let numbers = attached()?;
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let remote = RemoteMounts::read()?;
    let mut found = Vec::new();
    for number in numbers {
        let path = node::path(number);
        let backing = node::backing(number).unwrap_or_default();
        if remote.contains(&backing) && !concerns(&backing) {
            let loopdev = unresponsive(number, path, (0, 0));
            found.push(LoopStatus { loopdev, size_limit: 0, offset: 0 });
            continue;
        }
        node::ensure(&path, number)?;
        let device = match File::open(&path) {
            // The device was removed meanwhile.
            Err(error) if node::is_gone(&error) => continue,
            device => device.map_err(Error::io("open", &path))?,
        };
        match sys::loops::status(&device) {
            Ok(info) => found.push(LoopStatus {
                loopdev: describe(number, path, &info),
                size_limit: info.size_limit,
                offset: info.offset,
            }),
            // The device was detached meanwhile.
            Err(Errno::NXIO) => {}
            // One dead disk must not hide the other devices.
            Err(_) => {
                let loopdev = unresponsive(number, path, (0, 0));
                found.push(LoopStatus { loopdev, size_limit: 0, offset: 0 });
            }
        }
    }
    Ok(found)
}

/// Returns the numbers of attached devices whose images are not on a network filesystem.
pub fn attached_locally() -> Result<Vec<u32>> {
    let mut numbers = attached()?;
    if !numbers.is_empty() {
        let remote = RemoteMounts::read()?;
        numbers.retain(|number| {
            !node::backing(*number).is_some_and(|backing| remote.contains(&backing))
        });
    }
    Ok(numbers)
}

/// Returns the device number of the block device at `path`, which its mounts have as `st_dev`.
pub fn device_number(path: &Path) -> Result<u64> {
    let metadata = path.metadata().map_err(Error::io("look at", path))?;
    if metadata.file_type().is_block_device() {
        return Ok(metadata.rdev());
    }
    let detail = "expected a block device".to_owned();
    Err(Error::Malformed { path: path.to_owned(), detail })
}

/// Distinguishes a missing free device from other errors, such as a missing capability.
fn no_device(source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::EMFILE | libc::ENFILE) => {
            Error::io("ask for a loop device at", CONTROL)(source)
        }
        _ => Error::NoLoopDevice { source },
    }
}

fn open(path: &Path, read_only: bool) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(!read_only).open(path);
    opened.map_err(Error::io("open", path))
}

/// Attaches the image; again without direct I/O if the kernel refuses that.
fn configure(device: &File, image: &File, options: &LoopOptions) -> rustix::io::Result<()> {
    let block_size = options.block_size.unwrap_or_default();
    let flags = if options.read_only { sys::loops::READ_ONLY } else { 0 };
    if options.direct_io {
        match sys::loops::configure(device, image, flags | sys::loops::DIRECT_IO, block_size) {
            Err(Errno::INVAL) => {}
            done => return done,
        }
    }
    sys::loops::configure(device, image, flags, block_size)
}

/// Reads the result back: the kernel may have dropped direct I/O silently.
fn read_back(device: File, number: u32, path: PathBuf, image: &File) -> Result<HeldLoop> {
    let info = sys::loops::status(&device).map_err(Error::io("ask for the status of", &path))?;
    let loopdev = describe(number, path, &info);
    tracing::debug!(
        device = ?loopdev.path, image = ?crate::error::path_of(image), direct_io = loopdev.direct_io, "attached"
    );
    Ok(HeldLoop::new(device, loopdev))
}

/// Describes a device whose image's disk does not respond: for the status the kernel would have to
/// ask that disk.
fn unresponsive(number: u32, path: PathBuf, (device, inode): (u64, u64)) -> Loop {
    Loop {
        path,
        number,
        device,
        inode,
        backing: node::backing(number).unwrap_or_default(),
        read_only: node::is_read_only(number),
        direct_io: false,
        clearing: false,
        partial: false,
    }
}

fn describe(number: u32, path: PathBuf, info: &sys::loops::Info) -> Loop {
    let has = |flag| info.flags & flag != 0;
    Loop {
        path,
        number,
        device: info.device,
        inode: info.inode,
        backing: node::backing(number).unwrap_or_default(),
        read_only: has(sys::loops::READ_ONLY),
        direct_io: has(sys::loops::DIRECT_IO),
        clearing: has(sys::loops::AUTOCLEAR),
        partial: info.offset != 0 || info.size_limit != 0,
    }
}
