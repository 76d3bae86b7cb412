//! Which images are locked, and for what.
//!
//! A *device* lock is for those who attach, mount, bind, detach or delete. A *copy* lock is for those who read a whole image;
//! several copies of one image are made at the same time, also while its device is in use. A *change* needs the device lock,
//! waits for the copies under way and holds new ones up: it is for those who write to the image past its device.
//!
//! Nobody waits for a device lock who holds a copy lock, so that no two callers ever wait for each other.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::error::Error;

/// How long a call waits for another one that works on the same image.
const PATIENCE: Duration = Duration::from_secs(60);

/// The locks of all images.
#[derive(Debug, Default)]
pub(super) struct Locks {
    images: Mutex<HashMap<PathBuf, Held>>,
    released: Condvar,
}

/// How one image is locked now. An image that nobody has locked has no entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    device: bool,
    copies: usize,
    changing: bool,
}

impl Locks {
    /// Takes the device lock of an image.
    ///
    /// # Errors
    /// When another call has it for more than a minute.
    pub(super) fn lock_device(&self, image: &Path) -> Result<DeviceLock<'_>, Error> {
        self.wait(image, |held| !held.device, |held| held.device = true)?;
        Ok(DeviceLock { locks: self, image: image.to_owned() })
    }

    /// Takes a copy lock of an image.
    ///
    /// # Errors
    /// When the image is changed for more than a minute.
    pub(super) fn lock_copy(&self, image: &Path) -> Result<CopyLock<'_>, Error> {
        self.wait(image, |held| !held.changing, |held| held.copies += 1)?;
        Ok(CopyLock { locks: self, image: image.to_owned() })
    }

    fn wait(
        &self,
        image: &Path,
        is_free: impl Fn(&Held) -> bool,
        take: impl FnOnce(&mut Held),
    ) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        let mut images = self.images();
        while !images.get(image).is_none_or(&is_free) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Pending(format!(
                    "another call works on image {}: call again",
                    image.display()
                )));
            }
            let waited = self.released.wait_timeout(images, left);
            images = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        take(images.entry(image.to_owned()).or_default());
        Ok(())
    }

    fn release(&self, image: &Path, give_back: impl FnOnce(&mut Held)) {
        let mut images = self.images();
        if let Some(held) = images.get_mut(image) {
            give_back(held);
            if *held == Held::default() {
                images.remove(image);
            }
        }
        self.released.notify_all();
    }

    fn images(&self) -> MutexGuard<'_, HashMap<PathBuf, Held>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device lock of an image, until this is dropped.
#[derive(Debug)]
pub(super) struct DeviceLock<'a> {
    locks: &'a Locks,
    image: PathBuf,
}

impl DeviceLock<'_> {
    /// Waits for the copies under way, and holds new ones up until the guard is dropped. One guard at a time.
    ///
    /// # Errors
    /// When the image is copied for more than a minute.
    pub(super) fn change(&self) -> Result<ChangeGuard<'_>, Error> {
        let free = |held: &Held| held.copies == 0 && !held.changing;
        self.locks.wait(&self.image, free, |held| held.changing = true)?;
        Ok(ChangeGuard { locks: self.locks, image: &self.image })
    }
}

impl Drop for DeviceLock<'_> {
    fn drop(&mut self) {
        self.locks.release(&self.image, |held| held.device = false);
    }
}

/// An image that is not changed past its device until this is dropped.
#[derive(Debug)]
#[must_use = "the image may be changed as soon as this is dropped"]
pub(crate) struct CopyLock<'a> {
    locks: &'a Locks,
    image: PathBuf,
}

impl Drop for CopyLock<'_> {
    fn drop(&mut self) {
        self.locks.release(&self.image, |held| held.copies -= 1);
    }
}

/// An image that is not copied until this is dropped.
#[derive(Debug)]
#[must_use = "the image may be copied as soon as this is dropped"]
pub(crate) struct ChangeGuard<'a> {
    locks: &'a Locks,
    image: &'a Path,
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.locks.release(self.image, |held| held.changing = false);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    const IMAGE: &str = "/pool/volumes/a.img";

    #[test]
    fn copies_go_beside_each_other_and_beside_a_device_in_use() {
        let locks = Locks::default();
        let _device = locks.lock_device(Path::new(IMAGE)).unwrap();
        let _first = locks.lock_copy(Path::new(IMAGE)).unwrap();
        let _second = locks.lock_copy(Path::new(IMAGE)).unwrap();
    }

    #[test]
    fn a_change_waits_for_copies_and_holds_new_ones_up() {
        let locks = Locks::default();
        let image = Path::new(IMAGE);
        let copy = locks.lock_copy(image).unwrap();
        let (send, steps) = mpsc::channel();
        thread::scope(|scope| {
            let (locks, send) = (&locks, &send);
            let device = locks.lock_device(image).unwrap();
            let changer = scope.spawn(move || {
                let _change = device.change().unwrap();
                send.send("changed").unwrap();
            });
            // The change cannot begin before this is sent.
            send.send("copied").unwrap();
            drop(copy);
            changer.join().unwrap();
            let _copy = locks.lock_copy(image).unwrap();
            send.send("copied again").unwrap();
        });
        drop(send);
        assert_eq!(steps.into_iter().collect::<Vec<_>>(), ["copied", "changed", "copied again"]);
        assert!(locks.images().is_empty());
    }
}
