//! Detaches loop devices and waits for the result.

use std::{
    fs::File,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};

use super::{Loop, node, remove_if_refusing_discards};
use crate::{Error, Result, sys};

/// Maximum wait for other users. Programs such as udev open a device only for moments; a longer
/// hold is a real use.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Detaches the device. A no-op if its image is no longer attached to it.
///
/// The kernel detaches a device that another program has open only when that program closes it.
/// This function waits up to 5 seconds for that, then fails with [`Error::Busy`]; the kernel still
/// detaches the device later. A device that refused discards then needs to be
/// [removed](remove_if_refusing_discards) later.
pub fn detach(loopdev: &Loop) -> Result<()> {
    let path = &loopdev.path;
    // Watch the device first, so that no close event is missed.
    let closes = watch(path);
    let device = match File::open(path) {
        Err(error) if node::is_gone(&error) => return Ok(()),
        device => device.map_err(Error::io("open", path))?,
    };
    match sys::loops::status(&device) {
        Ok(info) if (info.device, info.inode) == (loopdev.device, loopdev.inode) => {}
        Ok(_) | Err(Errno::NXIO) => return Ok(()),
        // The image's disk does not respond. Identify the image by its path.
        Err(_) if node::backing(loopdev.number).as_ref() == Some(&loopdev.backing) => {}
        Err(errno) => return Err(Error::io("ask for the status of", path)(errno)),
    }
    let backing = node::backing(loopdev.number);
    let refused_discards = node::refuses_discards(loopdev.number);
    match sys::loops::clear(&device) {
        Ok(()) | Err(Errno::NXIO) => {}
        Err(errno) => return Err(Error::io("detach", path)(errno)),
    }
    // Recent kernels detach a device only on its last close, which may be this one.
    drop(device);
    wait(loopdev, backing.as_deref(), closes.as_ref())?;
    if refused_discards {
        remove_if_refusing_discards(loopdev.number);
    }
    tracing::debug!(device = ?path, "detached");
    Ok(())
}

/// Waits until the file in `/sys` is gone or names another image. The kernel sends the close event
/// just before it detaches, so growing pauses supplement the events.
fn wait(loopdev: &Loop, backing: Option<&Path>, closes: Option<&OwnedFd>) -> Result<()> {
    let deadline = Instant::now() + MAX_WAIT;
    let mut pause = Duration::from_millis(1);
    while backing.is_some() && node::backing(loopdev.number).as_deref() == backing {
        if Instant::now() >= deadline {
            return Err(Error::Busy { operation: "detach", path: PathBuf::from(&loopdev.path) });
        }
        next_close(closes, pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    Ok(())
}

/// Watches closes of the device. If that fails, the pauses of [`wait`] suffice.
fn watch(path: &Path) -> Option<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    inotify::add_watch(&watch, path, WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE).ok()?;
    Some(watch)
}

/// Waits for the next close, or until `pause` ends.
fn next_close(closes: Option<&OwnedFd>, pause: Duration) {
    let mut events: Vec<_> =
        closes.into_iter().map(|watch| PollFd::new(watch, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
    // An interrupted wait only shortens the pause.
    let _ = poll(&mut events, Some(&timeout));
    if let Some(watch) = closes {
        let mut buffer = [MaybeUninit::uninit(); 512];
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        while reader.next().is_ok() {}
    }
}
