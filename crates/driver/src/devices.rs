//! The loop devices of a pool's images: the one place that attaches and detaches them.
//!
//! An image has at most one device, which writes or only reads. A caller that attaches, mounts, binds or detaches locks the
//! image first ([`Devices::lock`]), and uses the device through a [`HeldLoop`], which the kernel cannot give to another
//! image meanwhile. Where an image is attached is remembered as a hint; one question to the kernel checks it. Before a new
//! attach, a deletion and a truncation all loop devices are looked at, and all of them once at the start.
//!
//! A device that is being cleared is an attachment like any other: somebody, in any mount namespace, still has it mounted.
//!
//! A hint has the identity of the file that was attached. When somebody puts another file in the image's place, the devices
//! of the old file are still found by it: they are unmounted and detached with the volume, and never used again.

mod look;

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

use look::{Hint, is_replaced};
pub(crate) use look::{Place, identity, shown_here};

use crate::{error::Error, files};

/// Every device has it, since a filesystem made for a smaller one cannot be mounted from a larger: direct I/O to an image
/// that shares blocks is in blocks of the pool, and the kernel's own choice would change with the first snapshot.
const BLOCK_SIZE: u32 = 4096;

/// An image that is not changed past its device while it is copied.
pub(crate) type CopyLock<'a> = ReadLock<'a, PathBuf>;
/// An image that is not copied while it is changed past its device.
pub(crate) type ChangeGuard<'a> = wharf_csi_sdk::resource_locks::ChangeGuard<'a, PathBuf>;

/// The locks of the images of all pools of a driver: a teardown without the pool takes the same lock as the pool does.
#[derive(Clone, Debug, Default)]
pub struct ImageLocks(Arc<ResourceLocks<PathBuf>>);

impl ImageLocks {
    /// Locks the image that a device shows, whose pool is not served. The caller asks after that whether it still is not.
    ///
    /// # Errors
    /// When another call works on it for more than a minute.
    pub(crate) fn lock_orphan(&self, device: &Loop) -> Result<OrphanLock<'_>, Error> {
        let image = device.backing.to_string_lossy();
        let image = Path::new(image.strip_suffix(" (deleted)").unwrap_or(&image));
        let lock = self.0.own(&key(image)).map_err(|_| still_locked(image))?;
        Ok(OrphanLock { _lock: lock })
    }
}

/// An image of a pool that is not served, which nobody else attaches, mounts, binds or detaches until this is dropped.
#[derive(Debug)]
#[must_use = "the image is locked until this is dropped"]
pub(crate) struct OrphanLock<'a> {
    _lock: OwnerLock<'a, PathBuf>,
}

impl OrphanLock<'_> {
    /// Detaches a device of the image; false if others hold it and the kernel detaches it when they close it.
    pub(crate) fn detach(&self, device: HeldLoop) -> Result<bool, Error> {
        match loopdev::detach(&device.into_loop()) {
            Err(wharf_mount::Error::Busy { path, .. }) => {
                tracing::warn!(device = %path.display(), "device is held by others, detached when they close it");
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
    /// Devices of others, and when they were looked at.
    foreign: Mutex<Option<(Instant, Vec<u32>)>>,
}

#[derive(Debug, Default)]
struct Registry {
    /// Where images were attached when they were last looked at: one device, unless somebody else attached the image too.
    hints: HashMap<PathBuf, Vec<Hint>>,
    /// Devices that refuse discards and that others close last; the kernel does not take them away then.
    spoilt: Vec<u32>,
}

/// How a detach ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    /// No device is left.
    Gone,
    /// Others hold this device; the kernel detaches it when they close it.
    LeftToOthers(PathBuf),
}

impl Devices {
    /// The devices of a pool, whose images are locked by these locks.
    pub(crate) fn new(locks: ImageLocks) -> Self {
        Self { locks, ..Self::default() }
    }

    /// Locks an image against all others that attach, mount, bind or detach it. A `thick` one keeps its blocks: its device
    /// refuses discards.
    ///
    /// # Errors
    /// When another call works on it for more than a minute.
    pub(crate) fn lock(&self, image: &Path, thick: bool) -> Result<ImageLock<'_>, Error> {
        let lock = self.locks.0.own(&key(image)).map_err(|_| still_locked(image))?;
        self.take_spoilt_away();
        Ok(ImageLock { devices: self, image: image.to_owned(), thick, lock })
    }

    /// Keeps an image from being changed, other than through its device, while it is copied.
    ///
    /// # Errors
    /// When a call changes it for more than a minute.
    pub(crate) fn lock_copy(&self, image: &Path) -> Result<CopyLock<'_>, Error> {
        self.locks.0.read(&key(image)).map_err(|_| still_locked(image))
    }

    /// How many detaches were left to other holders of the device.
    pub(crate) fn left_to_others(&self) -> u64 {
        self.left_to_others.load(Ordering::Relaxed)
    }

    /// Remembers a device that is detached when others close it.
    fn leave_to_others(&self, device: &Loop) {
        let spoilt = &mut self.registry().spoilt;
        if !spoilt.contains(&device.number) {
            spoilt.push(device.number);
        }
    }

    /// Takes away devices that others have closed since, and that would refuse discards to whoever gets them next.
    fn take_spoilt_away(&self) {
        self.registry().spoilt.retain(|number| !loopdev::take_away_spoilt(*number));
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An image that its owner alone attaches, mounts, binds and detaches until this is dropped.
#[derive(Debug)]
#[must_use = "the image is locked until this is dropped"]
pub(crate) struct ImageLock<'a> {
    devices: &'a Devices,
    image: PathBuf,
    thick: bool,
    lock: OwnerLock<'a, PathBuf>,
}

impl ImageLock<'_> {
    /// Waits for the copies of the image that are being made, and holds new ones up until the guard is dropped.
    ///
    /// # Errors
    /// When the image is copied for more than a minute.
    pub(crate) fn change(&self) -> Result<ChangeGuard<'_>, Error> {
        self.lock.change().map_err(|_| still_locked(&self.image))
    }

    /// The image's device, attached if it is not. A device that is being cleared is taken back.
    ///
    /// # Errors
    /// When somebody uses the image on a device that writes and this one must not, or the other way round.
    pub(crate) fn attach(&self, read_only: bool) -> Result<HeldLoop, Error> {
        let now = identity(&self.image)?;
        let mut found = self.devices.find(&self.image)?;
        let usable = match &found[..] {
            [device] => !is_replaced(device, now) && fits(device, read_only)?,
            _ => false,
        };
        if !usable {
            // What is held here cannot be detached.
            found.clear();
            found = self.devices.look(&self.image)?;
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
        // More than one is somebody else's doing. A filesystem that is mounted from two devices destroys itself.
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
                device.keep()?;
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

    /// Detaches the image. A device that others hold stays until they close it.
    pub(crate) fn detach(&self) -> Result<Detached, Error> {
        let mut detached = Detached::Gone;
        for device in self.devices.look(&self.image)? {
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

    /// Detaches the image unless it is in use. `verb` says what is to be done with it.
    ///
    /// # Errors
    /// When a device of it is in use, in whatever mount namespace. A mounted device stays as it is then; one that is only
    /// open is detached when its last user closes it.
    pub(crate) fn ensure_detached(&self, verb: &'static str) -> Result<(), Error> {
        for device in self.devices.look(&self.image)? {
            self.remove(device, verb)?;
        }
        self.devices.note(&self.image, &[]);
        Ok(())
    }

    /// Deletes the image; one that is gone is deleted. Its space is free at once.
    ///
    /// # Errors
    /// When it is in use, or the disk fails.
    pub(crate) fn delete(&self) -> Result<(), Error> {
        let _change = self.change()?;
        self.ensure_detached("deleted")?;
        files::free(&self.image).map_err(Error::file("delete image", &self.image))
    }

    /// Takes the end of the image away.
    ///
    /// # Errors
    /// When a device shows more than `size` bytes of it: somebody may have written there.
    pub(crate) fn shorten(&self, size: u64) -> Result<(), Error> {
        for device in self.devices.look(&self.image)? {
            if device.size()? > size {
                return Err(in_use(self.subject(), &device, "made smaller"));
            }
        }
        let file = files::open_to_write(&self.image);
        let shortened = file.and_then(|file| file.set_len(size));
        shortened.map_err(Error::file("shorten image", &self.image))
    }

    /// Detaches a device that nobody uses.
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

    /// Detaches the device of a file that is no longer the image. One that only others hold is left to them.
    fn detach_replaced(&self, device: HeldLoop) -> Result<(), Error> {
        if shown_here(&device)? {
            return Err(replaced(&self.image, &device));
        }
        let device = device.into_loop();
        match loopdev::detach(&device) {
            Err(wharf_mount::Error::Busy { path, .. }) => {
                self.devices.leave_to_others(&device);
                tracing::warn!(image = %self.image.display(), device = %path.display(),
                    "device of a replaced image is held by others, detached when they close it");
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
                "attached without direct I/O: the pool's filesystem refuses it, data is cached twice");
        }
        Ok(device)
    }
}

/// Whether a device is as one of ours would be. One that somebody else attached may show a part of the image, or blocks
/// of another size: what is written through it cannot be read on a device of ours.
fn fits(device: &HeldLoop, read_only: bool) -> Result<bool, Error> {
    let whole = !device.partial && device.block_size()? == BLOCK_SIZE;
    Ok(whole && device.read_only == read_only)
}

/// What an image is locked by: its folder's name and its own, which is random, wherever its pool is mounted.
fn key(image: &Path) -> PathBuf {
    let folder = image.parent().and_then(Path::file_name).unwrap_or_default();
    Path::new(folder).join(image.file_name().unwrap_or_default())
}

fn still_locked(image: &Path) -> Error {
    Error::Pending(format!("another call works on image {}: call again", image.display()))
}

/// Says who uses a device, as far as that can be seen.
pub(crate) fn in_use(subject: &'static str, device: &Loop, verb: &'static str) -> Error {
    let how = if device.read_only { "only for reading" } else { "for writing" };
    let holders = wharf_mount::holders::of_device(device.number);
    Error::Precondition(format!(
        "the {subject} cannot be {verb}: it is in use {how} on {}{holders}; end that use first",
        device.path.display()
    ))
}

/// Says that the file of an image is another one than its device shows.
pub(crate) fn replaced(image: &Path, device: &Loop) -> Error {
    Error::Precondition(format!(
        "image {} was replaced while the old file is in use on {}: unpublish and unstage the volume, then the new file is used",
        image.display(),
        device.path.display()
    ))
}
