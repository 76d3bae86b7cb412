//! A loop device that this process holds open.

use std::{
    fs::{File, OpenOptions},
    ops::Deref,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use super::{Loop, describe, node, unresponsive};
use crate::{Error, Result, sys};

/// Claims that end within this time are not a use of the device.
const PASSING_CLAIM: Duration = Duration::from_secs(1);

/// A loop device that this process holds open.
///
/// While it is held, the kernel neither detaches the image nor reuses the device's number, so a
/// mount or bind by the device's path gets this image.
#[derive(Debug)]
pub struct HeldLoop {
    device: File,
    loopdev: Loop,
}

impl HeldLoop {
    pub(super) fn new(device: File, loopdev: Loop) -> Self {
        Self { device, loopdev }
    }

    /// Opens the device with this number. Returns `None` unless the file with this device number
    /// and inode is attached to it. If the file's disk does not respond, now or when the device was
    /// listed (numbers 0 and 0), the file is identified by its path `backing`.
    pub fn open(
        number: u32,
        (device, inode): (u64, u64),
        backing: Option<&Path>,
    ) -> Result<Option<Self>> {
        let path = node::path(number);
        let file = match File::open(&path) {
            Err(error) if node::is_gone(&error) => return Ok(None),
            file => file.map_err(Error::io("open", &path))?,
        };
        match sys::loops::status(&file) {
            Ok(info) if (info.device, info.inode) == (device, inode) => {
                Ok(Some(Self::new(file, describe(number, path, &info))))
            }
            Ok(info) if (device, inode) == (0, 0) => {
                let loopdev = describe(number, path, &info);
                let same = backing.is_some_and(|backing| backing == loopdev.backing);
                Ok(same.then(|| Self::new(file, loopdev)))
            }
            Ok(_) | Err(Errno::NXIO) => Ok(None),
            Err(_) => {
                let loopdev = unresponsive(number, path, (device, inode));
                let same = backing.is_some_and(|backing| backing == loopdev.backing);
                Ok(same.then(|| Self::new(file, loopdev)))
            }
        }
    }

    /// Cancels a detach that waits for other users of the device.
    pub fn cancel_detach(&mut self) -> Result<()> {
        let path = &self.loopdev.path;
        let mut info =
            sys::loops::status(&self.device).map_err(Error::io("ask for the status of", path))?;
        if info.flags & sys::loops::AUTOCLEAR != 0 {
            info.flags &= !sys::loops::AUTOCLEAR;
            sys::loops::set_status(&self.device, info).map_err(Error::io("keep attached", path))?;
            tracing::debug!(device = ?path, "took back a detach");
        }
        let info =
            sys::loops::status(&self.device).map_err(Error::io("ask for the status of", path))?;
        self.loopdev = describe(self.loopdev.number, path.clone(), &info);
        Ok(())
    }

    /// Whether a filesystem on the device is mounted in any mount namespace, or a program has
    /// opened it exclusively.
    ///
    /// Does not detect programs that merely have the device open.
    pub fn is_claimed(&self) -> Result<bool> {
        let path = &self.loopdev.path;
        match OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path) {
            Ok(_) => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(true),
            Err(error) => Err(Error::io("open", path)(error)),
        }
    }

    /// Whether the device is [claimed](Self::is_claimed) for a second.
    ///
    /// A container runtime that starts a container holds every mount of the node in the container's
    /// mount namespace for a moment. The kernel sends no event at the end of a claim, so this
    /// function polls with growing pauses.
    pub fn stays_claimed(&self) -> Result<bool> {
        let deadline = Instant::now() + PASSING_CLAIM;
        let mut pause = Duration::from_millis(1);
        while self.is_claimed()? {
            if Instant::now() >= deadline {
                return Ok(true);
            }
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
        Ok(false)
    }

    /// Device number of the loop device, which its mounts have as `st_dev`.
    pub fn device_number(&self) -> Result<u64> {
        let metadata = self.device.metadata().map_err(Error::io("look at", &self.loopdev.path))?;
        Ok(metadata.rdev())
    }

    /// Makes the device refuse discards, which would free blocks of the image.
    pub fn refuse_discards(&self) -> Result<()> {
        match node::refuses_discards(self.loopdev.number) {
            true => Ok(()),
            false => node::refuse_discards(self.loopdev.number),
        }
    }

    /// Logical block size of the device.
    pub fn block_size(&self) -> Result<u32> {
        node::block_size(self.loopdev.number)
    }

    /// Size of the device in bytes.
    pub fn size(&self) -> Result<u64> {
        crate::space::block_device_size(&self.device)
    }

    /// Adjusts the device's size to the present size of its image.
    pub fn set_capacity(&self) -> Result<()> {
        sys::loops::set_capacity(&self.device).map_err(Error::io("resize", &self.loopdev.path))
    }

    /// Flushes data written to the device to the image.
    pub fn flush(&self) -> Result<()> {
        self.device.sync_all().map_err(Error::io("flush", &self.loopdev.path))
    }

    /// Closes the device and returns its description.
    pub fn into_loop(self) -> Loop {
        self.loopdev
    }
}

impl Deref for HeldLoop {
    type Target = Loop;

    fn deref(&self) -> &Loop {
        &self.loopdev
    }
}
