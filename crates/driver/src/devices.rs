//! The loop devices of a pool's images. Only this module attaches and detaches them.
//!
//! An image has at most one device, which is either writable or read-only. A caller that attaches,
//! mounts, binds or detaches locks the image first ([`Devices::lock`]) and uses the device through
//! a [`HeldLoop`], so that the kernel cannot reuse the device for another image meanwhile. The
//! driver caches where an image is attached as a hint, which one call to the kernel verifies. All
//! loop devices are listed once at startup, and before each new attach, deletion and truncation.
//!
//! A device that is being detached still counts as attached: some process, in any mount namespace,
//! has it mounted.
//!
//! A hint has the identity of the attached file. If someone replaces the image by another file, the
//! hint still finds the devices of the old file. They are unmounted and detached with the volume,
//! but not used again.

mod lookup;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use wharf_csi_sdk::resource_locks::{OwnerLock, ReadLock, ResourceLocks};
use wharf_mount::loopdev::{self, HeldLoop, Loop, LoopOptions};

use lookup::{Hint, is_replaced};
pub(crate) use lookup::{Place, identity, shown_here};

use crate::{error::Error, files};

/// Block size of all devices, since a filesystem made for a smaller block size cannot be mounted
/// from a larger one. The kernel's own choice depends on the image: direct I/O to an image that
/// shares blocks uses the pool's block size, so it would change with the first snapshot.
const BLOCK_SIZE: u32 = 4096;

/// Prevents changes of an image, other than through its device, while it is copied.
pub(crate) type CopyLock<'a> = ReadLock<'a, PathBuf>;
/// Prevents copies of an image while it is changed, other than through its device.
pub(crate) type ChangeGuard<'a> = wharf_csi_sdk::resource_locks::ChangeGuard<'a, PathBuf>;

/// Locks of the images of all pools of a driver. Teardowns without a pool and the pool itself use
/// the same lock.
#[derive(Clone, Debug, Default)]
pub struct ImageLocks(Arc<ResourceLocks<PathBuf>>);

impl ImageLocks {
    /// Locks the image of a device whose pool is not served. The caller must check again afterwards
    /// that the pool is still not served.
    ///
    /// # Errors
    /// If another call holds the lock for more than a minute.
    pub(crate) fn lock_orphan(&self, device: &Loop) -> Result<OrphanLock<'_>, Error> {
        let image = device.backing.to_string_lossy();
        let image = Path::new(image.strip_suffix(" (deleted)").unwrap_or(&image));
        let lock = self.0.own(&key(image)).map_err(|_| still_locked(image))?;
        Ok(OrphanLock { _lock: lock })
    }
}

/// An exclusive lock on an image whose pool is not served.
#[derive(Debug)]
#[must_use = "the lock is released when this guard is dropped"]
pub(crate) struct OrphanLock<'a> {
    _lock: OwnerLock<'a, PathBuf>,
}

impl OrphanLock<'_> {
    /// Detaches a device of the image. Returns false if other processes hold it; the kernel then
    /// detaches it when they close it.
    pub(crate) fn detach(&self, device: HeldLoop) -> Result<bool, Error> {
        match loopdev::detach(&device.into_loop()) {
            Err(wharf_mount::Error::Busy { path, .. }) => {
                tracing::warn!(device = %path.display(), "device in use, kernel detaches it on last close");
                Ok(false)
            }
            done => Ok(done.map(|()| true)?),
        }
    }
}

/// The loop devices of a pool's images.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    locks: ImageLocks,
    registry: Mutex<Registry>,
    left_to_others: AtomicU64,
    /// Numbers of devices that are not ours, and when they were listed.
    foreign: Mutex<Option<(Instant, Vec<u32>)>>,
}

#[derive(Debug, Default)]
struct Registry {
    /// Where images were attached when last checked: one device, unless another program attached
    /// the image, too.
    hints: HashMap<PathBuf, Vec<Hint>>,
    /// Devices that refuse discards and were in use when detached; the kernel does not remove them
    /// on their last close.
    refusing: Vec<u32>,
}

/// Result of a detach.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    /// No device is left.
    Gone,
    /// Other processes hold this device; the kernel detaches it when they close it.
    LeftToOthers(PathBuf),
}

impl Devices {
    /// Creates the device table of a pool whose images are locked with these locks.
    pub(crate) fn new(locks: ImageLocks) -> Self {
        Self { locks, ..Self::default() }
    }

    /// Locks an image for attaching, mounting, binding and detaching. The device of a `thick` image
    /// refuses discards, so that the image keeps its blocks.
    ///
    /// # Errors
    /// If another call holds the lock for more than a minute.
    pub(crate) fn lock(&self, image: &Path, thick: bool) -> Result<ImageLock<'_>, Error> {
        let lock = self.locks.0.own(&key(image)).map_err(|_| still_locked(image))?;
        self.remove_refusing();
        Ok(ImageLock { devices: self, image: image.to_owned(), thick, lock })
    }

    /// Locks an image against changes, other than through its device, while it is copied.
    ///
    /// # Errors
    /// If a call changes it for more than a minute.
    pub(crate) fn lock_copy(&self, image: &Path) -> Result<CopyLock<'_>, Error> {
        self.locks.0.read(&key(image)).map_err(|_| still_locked(image))
    }

    /// Number of detaches that the kernel completes when other processes close the device.
    pub(crate) fn left_to_others(&self) -> u64 {
        self.left_to_others.load(Ordering::Relaxed)
    }

    /// Remembers a device that the kernel detaches when other processes close it.
    fn leave_to_others(&self, device: &Loop) {
        let refusing = &mut self.registry().refusing;
        if !refusing.contains(&device.number) {
            refusing.push(device.number);
        }
    }

    /// Removes devices that other processes have closed since, and that would refuse discards for
    /// their next image.
    fn remove_refusing(&self) {
        self.registry().refusing.retain(|number| !loopdev::remove_if_refusing_discards(*number));
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exclusive lock for attaching, mounting, binding and detaching an image.
#[derive(Debug)]
#[must_use = "the lock is released when this guard is dropped"]
pub(crate) struct ImageLock<'a> {
    devices: &'a Devices,
    image: PathBuf,
    thick: bool,
    lock: OwnerLock<'a, PathBuf>,
}

impl ImageLock<'_> {
    /// Waits for running copies of the image, and blocks new ones until the guard is dropped.
    ///
    /// # Errors
    /// If the image is being copied for more than a minute.
    pub(crate) fn change(&self) -> Result<ChangeGuard<'_>, Error> {
        self.lock.change().map_err(|_| still_locked(&self.image))
    }

    /// Returns the image's device, attaching it if needed. Cancels a pending detach.
    ///
    /// # Errors
    /// If the image is in use on a writable device and a read-only one is requested, or the
    /// reverse.
    pub(crate) fn attach(&self, read_only: bool) -> Result<HeldLoop, Error> {
        let now = identity(&self.image)?;
        let mut found = self.devices.find(&self.image)?;
        let usable = match &found[..] {
            [device] => !is_replaced(device, now) && fits(device, read_only)?,
            _ => false,
        };
        if !usable {
            // A device that this process holds cannot be detached: release it first.
            found.clear();
            found = self.devices.rescan(&self.image)?;
        }
        let mut fitting = Vec::new();
        for device in found {
            if is_replaced(&device, now) {
                self.detach_replaced(device)?;
                continue;
            }
            match fits(&device, read_only)? {
                true => fitting.push(device),
                false => self.remove(device, "attached")?,
            }
        }
        // Only another program attaches an image twice. Mounting a filesystem from two devices
        // destroys it.
        let kept = match fitting.len() {
            0 | 1 => 0,
            _ => {
                let claimed: Result<Vec<_>, _> = fitting.iter().map(HeldLoop::is_claimed).collect();
                claimed?.iter().position(|claimed| *claimed).unwrap_or(0)
            }
        };
        let mut device = None;
        for (index, candidate) in fitting.into_iter().enumerate() {
            match index == kept {
                true => device = Some(candidate),
                false => self.remove(candidate, "attached twice")?,
            }
        }
        let device = match device {
            Some(mut device) => {
                device.cancel_detach()?;
                if self.thick && !read_only {
                    device.refuse_discards()?;
                }
                device
            }
            None => self.attach_new(read_only)?,
        };
        self.devices.note(&self.image, &[Loop::clone(&device)]);
        Ok(device)
    }

    /// Detaches the image. A device that other processes hold stays until they close it.
    pub(crate) fn detach(&self) -> Result<Detached, Error> {
        let mut detached = Detached::Gone;
        for device in self.devices.rescan(&self.image)? {
            let device = device.into_loop();
            match loopdev::detach(&device) {
                Err(wharf_mount::Error::Busy { path, .. }) => {
                    self.devices.left_to_others.fetch_add(1, Ordering::Relaxed);
                    self.devices.leave_to_others(&device);
                    detached = Detached::LeftToOthers(path);
                }
                done => done?,
            }
        }
        if detached == Detached::Gone {
            self.devices.note(&self.image, &[]);
        }
        Ok(detached)
    }

    /// Detaches the image if it is not in use. `verb` says what will be done with it, for the
    /// error.
    ///
    /// # Errors
    /// If a device of the image is in use in any mount namespace. A mounted device then stays
    /// attached; a device that is only open is detached when its last user closes it.
    pub(crate) fn ensure_detached(&self, verb: &'static str) -> Result<(), Error> {
        for device in self.devices.rescan(&self.image)? {
            self.remove(device, verb)?;
        }
        self.devices.note(&self.image, &[]);
        Ok(())
    }

    /// Deletes the image and frees its space at once. Succeeds if the image does not exist.
    ///
    /// # Errors
    /// If the image is in use, or the disk fails.
    pub(crate) fn delete(&self) -> Result<(), Error> {
        let _change = self.change()?;
        self.ensure_detached("deleted")?;
        files::free(&self.image).map_err(Error::file("delete image", &self.image))
    }

    /// Truncates the image.
    ///
    /// # Errors
    /// If a device is larger than `size`: its user may have written beyond.
    pub(crate) fn shorten(&self, size: u64) -> Result<(), Error> {
        for device in self.devices.rescan(&self.image)? {
            if device.size()? > size {
                return Err(in_use(self.subject(), &device, "made smaller"));
            }
        }
        let file = files::open_to_write(&self.image);
        let shortened = file.and_then(|file| file.set_len(size));
        shortened.map_err(Error::file("shorten image", &self.image))
    }

    /// Detaches a device that is not in use.
    fn remove(&self, device: HeldLoop, verb: &'static str) -> Result<(), Error> {
        if device.stays_claimed()? {
            return Err(in_use(self.subject(), &device, verb));
        }
        let loopdev = device.into_loop();
        match loopdev::detach(&loopdev) {
            Err(wharf_mount::Error::Busy { .. }) => {
                self.devices.leave_to_others(&loopdev);
                Err(in_use(self.subject(), &loopdev, verb))
            }
            done => Ok(done?),
        }
    }

    /// Detaches the device of a file that has been replaced as the image. If only other processes
    /// hold it, the kernel detaches it when they close it.
    fn detach_replaced(&self, device: HeldLoop) -> Result<(), Error> {
        if shown_here(&device)? {
            return Err(replaced(&self.image, &device));
        }
        let device = device.into_loop();
        match loopdev::detach(&device) {
            Err(wharf_mount::Error::Busy { path, .. }) => {
                self.devices.leave_to_others(&device);
                tracing::warn!(image = %self.image.display(), device = %path.display(),
                    "device of replaced image in use, kernel detaches it later");
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// The kind of object that the image belongs to, for messages.
    fn subject(&self) -> &'static str {
        let folder = self.image.parent().and_then(Path::file_name);
        if folder.is_some_and(|name| name == "snapshots") { "snapshot" } else { "volume" }
    }

    fn attach_new(&self, read_only: bool) -> Result<HeldLoop, Error> {
        let path = &self.image;
        let image = if read_only { files::open(path) } else { files::open_to_write(path) };
        let image = image.map_err(Error::file("open image", path))?;
        let options = LoopOptions {
            read_only,
            direct_io: true,
            block_size: Some(BLOCK_SIZE),
            refuse_discards: self.thick && !read_only,
        };
        let device = loopdev::attach(&image, &options)?;
        if !device.direct_io {
            tracing::warn!(image = %path.display(), device = %device.path.display(),
                "attached without direct I/O, data is cached twice");
        }
        Ok(device)
    }
}

/// Whether a device is attached as this driver does it. One that another program attached may show
/// a part of the image, or have another block size: data written through it cannot be read from a
/// device of ours.
fn fits(device: &HeldLoop, read_only: bool) -> Result<bool, Error> {
    let whole = !device.partial && device.block_size()? == BLOCK_SIZE;
    Ok(whole && device.read_only == read_only)
}

/// Lock key of an image: its folder's name and its own random name, wherever the pool is mounted.
fn key(image: &Path) -> PathBuf {
    let folder = image.parent().and_then(Path::file_name).unwrap_or_default();
    Path::new(folder).join(image.file_name().unwrap_or_default())
}

fn still_locked(image: &Path) -> Error {
    Error::Pending(format!("another call holds image {}: call again", image.display()))
}

/// Names the users of a device, as far as they are visible.
pub(crate) fn in_use(subject: &'static str, device: &Loop, verb: &'static str) -> Error {
    let how = if device.read_only { "only for reading" } else { "for writing" };
    let holders = wharf_mount::holders::of_device(device.number);
    Error::Precondition(format!(
        "the {subject} cannot be {verb}: it is in use {how} on {}{holders}; end that use first",
        device.path.display()
    ))
}

/// The image's file was replaced while its old file is attached.
pub(crate) fn replaced(image: &Path, device: &Loop) -> Error {
    Error::Precondition(format!(
        "image {} was replaced while the old file is in use on {}: unpublish and unstage the volume, then the new file is used",
        image.display(),
        device.path.display()
    ))
}
