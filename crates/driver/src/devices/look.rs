//! Which loop devices are an image's.

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

/// How late a device that somebody else attached may be noticed: the kubelet asks for the health of every volume, and a look
/// at all devices takes a millisecond with a thousand of them.
const LATE: Duration = Duration::from_secs(5);

/// How a disk answers that is dead, or that lost what it knew of a file.
const DEAD: [Errno; 6] =
    [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::STALE, Errno::NOTCONN, Errno::SHUTDOWN];

/// A file's device number and inode.
pub(crate) type Identity = (u64, u64);

/// A device, and the file that was attached to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    number: u32,
    image: Identity,
    backing: PathBuf,
}

impl Hint {
    /// Whether a device still has the file that was attached to it.
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
    /// The image.
    pub(crate) image: PathBuf,
    /// Where it is mounted, by its record.
    pub(crate) mounts: Vec<PathBuf>,
}

impl Devices {
    /// Looks at all loop devices once, for those of these images, and takes away free ones that an earlier start spoilt.
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
        for number in loopdev::spoilt()? {
            loopdev::take_away_spoilt(number);
        }
        Ok(())
    }

    /// The devices of an image, the writable one first. Whoever only looks needs no lock: a device that is held stays the
    /// image's. Where somebody replaced the image, the devices of the old file are among them.
    pub(crate) fn find(&self, image: &Path) -> Result<Vec<HeldLoop>, Error> {
        let Some(hints) = self.registry().hints.get(image).cloned() else { return Ok(Vec::new()) };
        let now = identity(image)?;
        if hints.iter().all(|hint| now.is_none_or(|now| now == hint.image)) {
            let held = hold(&hints)?;
            if held.len() == hints.len() {
                return Ok(held);
            }
        }
        self.look(image)
    }

    /// Remembers a device that shows an image's file of before: its disk came back under another device number.
    pub(crate) fn add_old(&self, image: &Path, device: &Loop) {
        let hint = Hint::of(device);
        let mut registry = self.registry();
        let hints = registry.hints.entry(image.to_owned()).or_default();
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }

    /// Whether a device shows a file that was attached to it as one of these images.
    pub(crate) fn knows(&self, device: &Loop) -> bool {
        self.registry().hints.values().flatten().any(|hint| hint.is_of(device))
    }

    /// The device number and inode of an image; `None` if it is gone, or its disk is dead.
    pub(crate) fn identity_of(&self, image: &Path) -> Result<Option<Identity>, Error> {
        identity(image)
    }

    /// Whether a device shows an image, by its inode.
    pub(crate) fn shows(&self, image: &Path, device: &Loop) -> bool {
        identity(image).is_ok_and(|now| now == Some(device.identity()))
    }

    /// The device through which an image is written, if there is one.
    ///
    /// # Errors
    /// When the device shows a file that is no longer the image.
    pub(crate) fn find_writable(&self, image: &Path) -> Result<Option<HeldLoop>, Error> {
        let device = self.find(image)?.into_iter().find(|device| !device.read_only);
        match device {
            Some(device) if self.shows_old_file(image, &device)? => Err(replaced(image, &device)),
            device => Ok(device),
        }
    }

    /// Whether a device of an image shows a file that somebody has replaced since.
    pub(crate) fn shows_old_file(&self, image: &Path, device: &Loop) -> Result<bool, Error> {
        Ok(is_replaced(device, identity(image)?))
    }

    /// A writable device of the image that somebody else attached besides the driver's own.
    ///
    /// Only devices that are no image's by the hints are asked, so that this is cheap on a node with many volumes.
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

    /// The numbers of attached devices that are no image's by the hints, as they were some seconds ago at the most.
    fn foreign(&self) -> Result<Vec<u32>, Error> {
        let mut seen = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, numbers)) = &*seen
            && when.elapsed() < LATE
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

    /// Looks at all loop devices for those of one image.
    pub(super) fn look(&self, image: &Path) -> Result<Vec<HeldLoop>, Error> {
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

/// The name of an attached file, as it is or was.
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

/// The devices of an image: by its inode, by what was attached there before, or by its path if somebody removed or replaced
/// the file.
fn of_image(image: &Path, now: Option<Identity>, known: &[Hint], all: &[LoopStatus]) -> Vec<Loop> {
    let removed = PathBuf::from(format!("{} (deleted)", image.display()));
    let own = |device: &Loop| {
        let before = known.iter().find(|hint| hint.is_of(device));
        let own = now == Some(device.identity()) || before.is_some() || device.backing == removed;
        // A disk that does not answer does not say which file it was.
        let identity = before.map_or(device.identity(), |hint| hint.image);
        own.then(|| Loop { device: identity.0, inode: identity.1, ..device.clone() })
    };
    all.iter().filter_map(|status| own(&status.loopdev)).collect()
}

/// The devices of no image that are mounted where a record says that the volume is, and whose file lay beside the image:
/// somebody may have renamed it before putting another one in its place.
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

/// Whether a device shows another file than the image is now. An image that is gone is not replaced.
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

/// An image's identity; `None` if it is gone, or its disk is dead. A symlink in its place leads to the file of somebody else,
/// and is not followed.
pub(crate) fn identity(image: &Path) -> Result<Option<Identity>, Error> {
    match fs::symlink_metadata(image) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // A dead disk has no images, and what is mounted of them is unmounted all the same.
        Err(error) if DEAD.iter().any(|dead| error.raw_os_error() == Some(dead.raw_os_error())) => {
            Ok(None)
        }
        Err(error) => Err(Error::file("look at image", image)(error)),
    }
}
