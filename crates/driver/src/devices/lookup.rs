//! Finds the loop devices of images.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::PoisonError,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use wharf_mount::{
    loopdev::{self, HeldLoop, Loop, LoopStatus},
    mountinfo,
};

use super::{Devices, replaced};
use crate::error::Error;

/// Maximum age of the list of foreign devices: the kubelet asks for the health of every volume, and
/// listing a thousand devices takes a millisecond.
const FOREIGN_LIST_AGE: Duration = Duration::from_secs(5);

/// Errors of a disk that is dead, or that lost the file.
const DEAD_DISK: [Errno; 6] =
    [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::STALE, Errno::NOTCONN, Errno::SHUTDOWN];

/// Device number and inode of a file.
pub(crate) type Identity = (u64, u64);

/// A device and the file that was attached to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    number: u32,
    image: Identity,
    backing: PathBuf,
}

impl Hint {
    /// Whether the device still has the file that was attached to it.
    fn is_of(&self, device: &Loop) -> bool {
        let same_file = match device.identity() {
            (0, 0) => self.backing == device.backing,
            identity => self.image == identity,
        };
        self.number == device.number && same_file
    }

    fn of(device: &Loop) -> Self {
        Self { number: device.number, image: device.identity(), backing: device.backing.clone() }
    }
}

/// An image, and the paths where its volume is staged and published.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Path of the image.
    pub(crate) image: PathBuf,
    /// Mount points in the volume's record.
    pub(crate) mounts: Vec<PathBuf>,
}

impl Devices {
    /// Lists all loop devices once to find those of these images. Also removes free devices that an
    /// earlier run left refusing discards.
    pub(crate) fn scan(&self, places: &[Place]) -> Result<(), Error> {
        let names: HashSet<_> = places.iter().filter_map(|place| place.image.file_name()).collect();
        let all = loopdev::list_asking(|backing| names.contains(file_name(backing)))?;
        let images: Vec<_> =
            places.iter().map(|place| identity(&place.image)).collect::<Result<_, _>>()?;
        let strays: Vec<_> = {
            let known: HashSet<_> = images.iter().flatten().collect();
            all.iter().filter(|status| !known.contains(&status.loopdev.identity())).collect()
        };
        for (place, now) in places.iter().zip(images) {
            let mut found = of_image(&place.image, now, &[], &all);
            for device in mounted_at(place, &strays)? {
                if !found.contains(&device) {
                    found.push(device);
                }
            }
            self.note(&place.image, &found);
        }
        for number in loopdev::refusing_discards()? {
            loopdev::remove_if_refusing_discards(number);
        }
        Ok(())
    }

    /// Returns the devices of an image, writable ones first; includes devices of an old file that
    /// was replaced. Readers need no lock: a held device keeps its image.
    pub(crate) fn find(&self, image: &Path) -> Result<Vec<HeldLoop>, Error> {
        let Some(hints) = self.registry().hints.get(image).cloned() else { return Ok(Vec::new()) };
        let now = identity(image)?;
        if hints.iter().all(|hint| now.is_none_or(|now| now == hint.image)) {
            let held = hold(&hints)?;
            if held.len() == hints.len() {
                return Ok(held);
            }
        }
        self.rescan(image)
    }

    /// Adds a device that shows a previous file of an image: its disk came back under another
    /// device number.
    pub(crate) fn add_old(&self, image: &Path, device: &Loop) {
        let hint = Hint::of(device);
        let mut registry = self.registry();
        let hints = registry.hints.entry(image.to_owned()).or_default();
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }

    /// Whether a device shows a file that was attached as one of these images.
    pub(crate) fn knows(&self, device: &Loop) -> bool {
        self.registry().hints.values().flatten().any(|hint| hint.is_of(device))
    }

    /// Returns device number and inode of an image; `None` if it does not exist, or its disk is
    /// dead.
    pub(crate) fn identity_of(&self, image: &Path) -> Result<Option<Identity>, Error> {
        identity(image)
    }

    /// Whether a device shows an image, by its inode.
    pub(crate) fn shows(&self, image: &Path, device: &Loop) -> bool {
        identity(image).is_ok_and(|now| now == Some(device.identity()))
    }

    /// Returns the device through which an image is written, if any.
    ///
    /// # Errors
    /// If the device shows a file that is no longer the image.
    pub(crate) fn find_writable(&self, image: &Path) -> Result<Option<HeldLoop>, Error> {
        let device = self.find(image)?.into_iter().find(|device| !device.read_only);
        match device {
            Some(device) if self.shows_old_file(image, &device)? => Err(replaced(image, &device)),
            device => Ok(device),
        }
    }

    /// Whether a device of an image shows a file that has been replaced since.
    pub(crate) fn shows_old_file(&self, image: &Path, device: &Loop) -> Result<bool, Error> {
        Ok(is_replaced(device, identity(image)?))
    }

    /// Returns a writable device of the image that another program attached in addition to the
    /// driver's own.
    ///
    /// Checks only devices that no hint assigns to an image, so this is cheap on a node with many
    /// volumes.
    pub(crate) fn second_writer(&self, image: &Path) -> Result<Option<Loop>, Error> {
        let Some(now) = identity(image)? else { return Ok(None) };
        let own = self.find(image)?;
        for number in self.foreign()? {
            if let Some(device) =
                HeldLoop::open(number, now, None)?.filter(|device| !device.read_only)
            {
                return Ok(Some(device.into_loop()));
            }
        }
        Ok(own.into_iter().filter(|device| !device.read_only).nth(1).map(HeldLoop::into_loop))
    }

    /// Numbers of attached devices that no hint assigns to an image, at most some seconds old.
    fn foreign(&self) -> Result<Vec<u32>, Error> {
        let mut seen = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, numbers)) = &*seen
            && when.elapsed() < FOREIGN_LIST_AGE
        {
            return Ok(numbers.clone());
        }
        let known: HashSet<u32> = {
            let registry = self.registry();
            registry.hints.values().flatten().map(|hint| hint.number).collect()
        };
        let mut numbers = loopdev::attached_locally()?;
        numbers.retain(|number| !known.contains(number));
        *seen = Some((Instant::now(), numbers.clone()));
        Ok(numbers)
    }

    /// Lists all loop devices to find those of one image, and updates its hints.
    pub(super) fn rescan(&self, image: &Path) -> Result<Vec<HeldLoop>, Error> {
        let known = self.registry().hints.get(image).cloned().unwrap_or_default();
        let is_own = |backing: &Path| {
            let was_own = || known.iter().any(|hint| hint.backing == backing);
            image.file_name() == Some(file_name(backing)) || was_own()
        };
        let found = of_image(image, identity(image)?, &known, &loopdev::list_asking(is_own)?);
        self.note(image, &found);
        hold(&found.iter().map(Hint::of).collect::<Vec<_>>())
    }

    pub(super) fn note(&self, image: &Path, found: &[Loop]) {
        let hints = &mut self.registry().hints;
        match found {
            [] => drop(hints.remove(image)),
            found => drop(hints.insert(image.to_owned(), found.iter().map(Hint::of).collect())),
        }
    }
}

/// File name of an attached file, present or past.
fn file_name(backing: &Path) -> &OsStr {
    let name = backing.file_name().unwrap_or_default();
    let removed = name.to_str().and_then(|name| name.strip_suffix(" (deleted)"));
    removed.map_or(name, OsStr::new)
}

fn hold(hints: &[Hint]) -> Result<Vec<HeldLoop>, Error> {
    let mut held = Vec::new();
    for hint in hints {
        held.extend(HeldLoop::open(hint.number, hint.image, Some(&hint.backing))?);
    }
    held.sort_by_key(|device| device.read_only);
    Ok(held)
}

/// Finds the devices of an image: by its inode, by its hints, or by its path if the file was
/// removed or replaced.
fn of_image(image: &Path, now: Option<Identity>, known: &[Hint], all: &[LoopStatus]) -> Vec<Loop> {
    let removed = PathBuf::from(format!("{} (deleted)", image.display()));
    let own = |device: &Loop| {
        let before = known.iter().find(|hint| hint.is_of(device));
        let own = now == Some(device.identity()) || before.is_some() || device.backing == removed;
        // For a disk that does not respond, take the identity from the hint.
        let identity = before.map_or(device.identity(), |hint| hint.image);
        own.then(|| Loop { device: identity.0, inode: identity.1, ..device.clone() })
    };
    all.iter().filter_map(|status| own(&status.loopdev)).collect()
}

/// Finds foreign devices that are mounted where the record says that the volume is, and whose file
/// is in the image's folder: someone may have renamed the image before creating a new image.
fn mounted_at(place: &Place, strays: &[&LoopStatus]) -> Result<Vec<Loop>, Error> {
    let mut found = Vec::new();
    let folder = place.image.parent().unwrap_or(Path::new("/"));
    for path in &place.mounts {
        let Some(root) = mountinfo::root_at(path)? else { continue };
        for status in strays.iter().filter(|status| status.loopdev.backing.starts_with(folder)) {
            if root.shows(loopdev::device_number(&status.loopdev.path)?) {
                found.push(status.loopdev.clone());
            }
        }
    }
    Ok(found)
}

/// Whether a device shows another file than the present image. A missing image is not replaced.
pub(super) fn is_replaced(device: &Loop, now: Option<Identity>) -> bool {
    now.is_some_and(|now| now != device.identity())
}

/// Whether a device, or a filesystem on it, is mounted in this mount namespace.
pub(crate) fn shown_here(device: &HeldLoop) -> Result<bool, Error> {
    let number = device.device_number()?;
    let node = Path::new("/").join(device.path.file_name().unwrap_or_default());
    let mounts = mountinfo::table()?;
    Ok(mounts.iter().any(|mount| mount.device == number || mount.root == node))
}

/// Returns an image's identity; `None` if it does not exist, or its disk is dead. Does not follow a
/// symlink in its place, which may lead to a foreign file.
pub(crate) fn identity(image: &Path) -> Result<Option<Identity>, Error> {
    match fs::symlink_metadata(image) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // Treat images on a dead disk as missing: their mounts must be unmounted all the same.
        Err(error)
            if DEAD_DISK.iter().any(|dead| error.raw_os_error() == Some(dead.raw_os_error())) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::file("look at image", image)(error)),
    }
}
