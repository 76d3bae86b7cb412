//! Image files as block devices.
//!
//! Loop devices are of the whole machine, and their numbers are used again at once: between a look
//! and an act another program may have attached its own file under the same number. A [`Loop`]
//! therefore carries the identity of its image, and [`detach()`] acts only on that.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::{Error, Result, mountinfo::RemoteMounts, sys};

mod detach;
mod held;
mod node;
mod spoilt;

pub use detach::detach;
pub use held::HeldLoop;
pub use node::attached;
pub use spoilt::{spoilt, take_away_spoilt};

const CONTROL: &str = "/dev/loop-control";

/// How often another program may take the device that was free a moment ago.
const RACES: usize = 64;

/// A loop device with an image attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Its node, `/dev/loop7`.
    pub path: PathBuf,
    /// Its number, 7.
    pub number: u32,
    /// The device that the image is on, in the form of `st_dev`.
    pub device: u64,
    /// The image's inode.
    pub inode: u64,
    /// The image's path, as it was or is; ` (deleted)` is part of it for an unlinked one.
    pub backing: PathBuf,
    /// The kernel refuses writes to it.
    pub read_only: bool,
    /// The image is read and written past the page cache.
    pub direct_io: bool,
    /// It is being detached: it will be gone once its last user, in whatever mount namespace, has closed it. Until then it
    /// is an attachment like any other, and its filesystem may still be written to.
    pub clearing: bool,
    /// It shows a part of the image: it begins somewhere inside of it, or is limited in size.
    pub partial: bool,
}

impl Loop {
    /// The image's device number and inode.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// A loop device as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopStatus {
    /// The device. Where the image's disk does not answer, its device number and inode are 0: only the path is known.
    pub loopdev: Loop,
    /// The device's size in bytes if it is limited, else 0: as large as the image.
    pub size_limit: u64,
    /// Where in the image it begins.
    pub offset: u64,
}

/// How to attach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopOptions {
    /// Have the kernel refuse writes.
    pub read_only: bool,
    /// Go past the page cache, where image and pool allow it.
    pub direct_io: bool,
    /// The device's logical block size; the kernel's choice if `None`.
    pub block_size: Option<u32>,
    /// Have the kernel refuse discards, which would give blocks of the image back to its filesystem.
    pub refuse_discards: bool,
}

/// Attaches `image`, which must be open for writing unless `read_only`.
///
/// [`Loop::direct_io`] says whether direct I/O, if asked for, could be had. The device stays
/// attached until it is [detached](detach()), also beyond the life of this process.
pub fn attach(image: &File, options: &LoopOptions) -> Result<HeldLoop> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(no_device)?;
    for _ in 0..RACES {
        let number = sys::loops::free(&control).map_err(|errno| no_device(errno.into()))?;
        let path = node::path(number);
        node::ensure(&path, number)?;
        let device = match open(&path, options.read_only) {
            // Somebody took the device away since.
            Err(error)
                if matches!(error.errno(), Some(libc::ENXIO | libc::ENODEV | libc::ENOENT)) =>
            {
                continue;
            }
            device => device?,
        };
        match configure(&device, image, options) {
            Ok(()) => {
                let held = settled(device, number, path, image)?;
                if options.refuse_discards {
                    held.refuse_discards()?;
                } else if node::refuses_discards(number) {
                    // A device that once refused them does so until it is taken away: `detach` does that, unless it is cut.
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

/// The devices that have the file with this device number and inode attached.
pub fn find(device: u64, inode: u64) -> Result<Vec<Loop>> {
    let loops = list()?.into_iter().map(|status| status.loopdev);
    Ok(loops.filter(|found| (found.device, found.inode) == (device, inode)).collect())
}

/// All loop devices that something is attached to.
///
/// Asking means to open each of them for a moment, and to wait for the filesystem that its file is on.
pub fn list() -> Result<Vec<LoopStatus>> {
    list_asking(|_| true)
}

/// The same for a caller who must not wait for a network disk of somebody else: a device whose file is on one is asked only
/// if the file `concerns` the caller, by its path. Of the others only the path is known, as of those on a dead disk.
pub fn list_asking(concerns: impl Fn(&Path) -> bool) -> Result<Vec<LoopStatus>> {
    let numbers = attached()?;
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let remote = RemoteMounts::look()?;
    let mut found = Vec::new();
    for number in numbers {
        let path = node::path(number);
        let backing = node::backing(number).unwrap_or_default();
        if remote.hold(&backing) && !concerns(&backing) {
            let loopdev = unanswered(number, path, (0, 0));
            found.push(LoopStatus { loopdev, size_limit: 0, offset: 0 });
            continue;
        }
        node::ensure(&path, number)?;
        let device = match File::open(&path) {
            // Removed since.
            Err(error) if node::is_gone(&error) => continue,
            device => device.map_err(Error::io("open", &path))?,
        };
        match sys::loops::status(&device) {
            Ok(info) => found.push(LoopStatus {
                loopdev: describe(number, path, &info),
                size_limit: info.size_limit,
                offset: info.offset,
            }),
            // Detached since.
            Err(Errno::NXIO) => {}
            // One dead disk must not hide the devices of all others.
            Err(_) => {
                let loopdev = unanswered(number, path, (0, 0));
                found.push(LoopStatus { loopdev, size_limit: 0, offset: 0 });
            }
        }
    }
    Ok(found)
}

/// The numbers of attached devices that can be asked without waiting for a network disk.
pub fn attached_locally() -> Result<Vec<u32>> {
    let mut numbers = attached()?;
    if !numbers.is_empty() {
        let remote = RemoteMounts::look()?;
        numbers
            .retain(|number| !node::backing(*number).is_some_and(|backing| remote.hold(&backing)));
    }
    Ok(numbers)
}

/// The number of the block device at `path`, as mounts of it have it.
pub fn device_number(path: &Path) -> Result<u64> {
    let metadata = path.metadata().map_err(Error::io("look at", path))?;
    if metadata.file_type().is_block_device() {
        return Ok(metadata.rdev());
    }
    let detail = "expected a block device".to_owned();
    Err(Error::Malformed { path: path.to_owned(), detail })
}

/// There is none, or it is another matter, such as a missing capability.
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

/// One step; a second one without direct I/O if the kernel refuses that.
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

/// What became of it: the kernel may have dropped direct I/O without a word.
fn settled(device: File, number: u32, path: PathBuf, image: &File) -> Result<HeldLoop> {
    let info = sys::loops::status(&device).map_err(Error::io("ask for the status of", &path))?;
    let loopdev = describe(number, path, &info);
    tracing::debug!(
        device = ?loopdev.path, image = ?crate::error::path_of(image), direct_io = loopdev.direct_io, "attached"
    );
    Ok(HeldLoop::new(device, loopdev))
}

/// A device whose image's disk does not answer: the kernel looks at the image to tell the device's status.
fn unanswered(number: u32, path: PathBuf, (device, inode): (u64, u64)) -> Loop {
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
