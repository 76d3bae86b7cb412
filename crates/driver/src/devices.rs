//! The loop devices of a pool's images: the one place that attaches and detaches them.
//!
//! An image has at most one device, which writes or only reads. A caller that attaches, mounts, binds or detaches locks the
//! image first ([`Devices::lock`]), and uses the device through a [`HeldLoop`], which the kernel cannot give to another
//! image meanwhile. Where an image is attached is remembered as a hint; one question to the kernel checks it. Before a new
//! attach, a deletion and a truncation all loop devices are looked at, and all of them once at the start.
//!
//! A device that is being cleared is an attachment like any other: somebody, in any mount namespace, still has it mounted.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use wharf_mount::loopdev::{self, HeldLoop, Loop, LoopOptions, LoopStatus};

use crate::error::Error;

/// Every device has it, since a filesystem made for a smaller one cannot be mounted from a larger: direct I/O to an image
/// that shares blocks is in blocks of the pool, and the kernel's own choice would change with the first snapshot.
const BLOCK_SIZE: u32 = 4096;

/// How long a call waits for another one that works on the same image.
const PATIENCE: Duration = Duration::from_secs(60);

/// The loop devices of a pool's images.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    registry: Mutex<Registry>,
    unlocked: Condvar,
    left_to_others: AtomicU64,
}

#[derive(Debug, Default)]
struct Registry {
    /// Images that a caller has locked.
    locked: HashSet<PathBuf>,
    /// Where images were attached when they were last looked at.
    hints: HashMap<PathBuf, Hint>,
}

#[derive(Clone, Debug)]
struct Hint {
    image: Identity,
    /// One, unless somebody else attached the image too.
    numbers: Vec<u32>,
}

/// A file's device number and inode.
type Identity = (u64, u64);

/// How a detach ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    /// No device is left.
    Gone,
    /// Others hold this device; the kernel detaches it when they close it.
    LeftToOthers(PathBuf),
}

impl Devices {
    /// Looks at all loop devices once, for the devices of these images.
    pub(crate) fn scan(&self, images: &[PathBuf]) -> Result<(), Error> {
        let all = loopdev::list()?;
        for image in images {
            self.note(image, &of_image(image, identity(image)?, &all));
        }
        Ok(())
    }

    /// The devices of an image, the writable one first. Whoever only looks needs no lock: a device that is held stays the
    /// image's.
    pub(crate) fn find(&self, image: &Path) -> Result<Vec<HeldLoop>, Error> {
        let Some(hint) = self.registry().hints.get(image).cloned() else { return Ok(Vec::new()) };
        let now = identity(image)?;
        if now.is_none_or(|now| now == hint.image) {
            let held = hold(&hint.numbers, hint.image)?;
            if held.len() == hint.numbers.len() {
                return Ok(held);
            }
        }
        self.look(image)
    }

    /// Locks an image against all others that attach, mount, bind or detach it. A `thick` one keeps its blocks: its device
    /// refuses discards.
    ///
    /// # Errors
    /// When another call works on it for more than a minute.
    pub(crate) fn lock(&self, image: &Path, thick: bool) -> Result<ImageLock<'_>, Error> {
        let deadline = Instant::now() + PATIENCE;
        let mut registry = self.registry();
        while registry.locked.contains(image) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = "another call works on the volume's device: call again";
                return Err(Error::Pending(text.to_owned()));
            }
            let waited = self.unlocked.wait_timeout(registry, left);
            registry = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        registry.locked.insert(image.to_owned());
        Ok(ImageLock { devices: self, image: image.to_owned(), thick })
    }

    /// How many detaches were left to other holders of the device.
    pub(crate) fn left_to_others(&self) -> u64 {
        self.left_to_others.load(Ordering::Relaxed)
    }

    /// Looks at all loop devices for those of one image.
    fn look(&self, image: &Path) -> Result<Vec<HeldLoop>, Error> {
        let found = of_image(image, identity(image)?, &loopdev::list()?);
        self.note(image, &found);
        let Some(first) = found.first() else { return Ok(Vec::new()) };
        let numbers: Vec<_> = found.iter().map(|device| device.number).collect();
        hold(&numbers, first.identity())
    }

    fn note(&self, image: &Path, found: &[Loop]) {
        let hints = &mut self.registry().hints;
        match found.first() {
            Some(first) => {
                let numbers = found.iter().map(|device| device.number).collect();
                hints.insert(image.to_owned(), Hint { image: first.identity(), numbers });
            }
            None => drop(hints.remove(image)),
        }
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
}

impl ImageLock<'_> {
    /// The image's device, attached if it is not. A device that is being cleared is taken back.
    ///
    /// # Errors
    /// When somebody uses the image on a device that writes and this one must not, or the other way round.
    pub(crate) fn attach(&self, read_only: bool) -> Result<HeldLoop, Error> {
        let mut found = self.devices.find(&self.image)?;
        let usable = match &found[..] {
            [device] => fits(device, read_only)?,
            _ => false,
        };
        if !usable {
            // What is held here cannot be detached.
            found.clear();
            found = self.devices.look(&self.image)?;
        }
        let mut fitting = Vec::new();
        for device in found {
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
            match loopdev::detach(&device.into_loop()) {
                Err(wharf_mount::Error::Busy { path, .. }) => {
                    self.devices.left_to_others.fetch_add(1, Ordering::Relaxed);
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

    /// Deletes the image; one that is gone is deleted. Its space is free at once: a filesystem may take its time with the
    /// blocks of an unlinked file.
    ///
    /// # Errors
    /// When it is in use, or the disk fails.
    pub(crate) fn delete(&self) -> Result<(), Error> {
        self.ensure_detached("deleted")?;
        let emptied = File::options().write(true).open(&self.image).and_then(|it| it.set_len(0));
        match emptied.and_then(|()| fs::remove_file(&self.image)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::file("delete image", &self.image)(error))
            }
            _ => Ok(()),
        }
    }

    /// Takes the end of the image away.
    ///
    /// # Errors
    /// When a device shows more than `size` bytes of it: somebody may have written there.
    pub(crate) fn shorten(&self, size: u64) -> Result<(), Error> {
        for device in self.devices.look(&self.image)? {
            if device.size()? > size {
                return Err(in_use(&device, "made smaller"));
            }
        }
        let file = File::options().write(true).open(&self.image);
        let shortened = file.and_then(|file| file.set_len(size));
        shortened.map_err(Error::file("shorten image", &self.image))
    }

    /// Detaches a device that nobody uses.
    fn remove(&self, device: HeldLoop, verb: &'static str) -> Result<(), Error> {
        if device.stays_claimed()? {
            return Err(in_use(&device, verb));
        }
        let loopdev = device.into_loop();
        match loopdev::detach(&loopdev) {
            Err(wharf_mount::Error::Busy { .. }) => Err(in_use(&loopdev, verb)),
            done => Ok(done?),
        }
    }

    fn attach_new(&self, read_only: bool) -> Result<HeldLoop, Error> {
        let path = &self.image;
        let image = File::options().read(true).write(!read_only).open(path);
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

impl Drop for ImageLock<'_> {
    fn drop(&mut self) {
        self.devices.registry().locked.remove(&self.image);
        self.devices.unlocked.notify_all();
    }
}

/// Whether a device is as one of ours would be. One that somebody else attached may show a part of the image, or blocks
/// of another size: what is written through it cannot be read on a device of ours.
fn fits(device: &HeldLoop, read_only: bool) -> Result<bool, Error> {
    let whole = !device.partial && device.block_size()? == BLOCK_SIZE;
    Ok(whole && device.read_only == read_only)
}

fn hold(numbers: &[u32], image: Identity) -> Result<Vec<HeldLoop>, Error> {
    let mut held = Vec::new();
    for number in numbers {
        held.extend(HeldLoop::open(*number, image)?);
    }
    held.sort_by_key(|device| device.read_only);
    Ok(held)
}

/// The devices of an image: by its inode, or by its path if somebody removed it.
fn of_image(image: &Path, now: Option<Identity>, all: &[LoopStatus]) -> Vec<Loop> {
    let removed = PathBuf::from(format!("{} (deleted)", image.display()));
    let own = |status: &&LoopStatus| match now {
        Some(now) => status.loopdev.identity() == now,
        None => status.backing == removed,
    };
    all.iter().filter(own).map(|status| status.loopdev.clone()).collect()
}

/// An image's identity; `None` if it is gone.
fn identity(image: &Path) -> Result<Option<Identity>, Error> {
    match fs::metadata(image) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("look at image", image)(error)),
    }
}

/// Says who uses a device, as far as that can be seen.
pub(crate) fn in_use(device: &Loop, verb: &'static str) -> Error {
    let how = if device.read_only { "only for reading" } else { "for writing" };
    let holders = wharf_mount::holders::of_device(device.number);
    Error::Precondition(format!(
        "the volume cannot be {verb}: it is in use {how} on {}{holders}; end that use first",
        device.path.display()
    ))
}
