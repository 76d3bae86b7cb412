//! To detach, and to be sure of it.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use super::{Loop, node, take_away_spoilt};
use crate::{Error, Result, sys};

/// Others open a device for moments only (udev to look what is on it); who holds it longer uses it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Detaches the device; nothing to do if its image is no longer attached to it.
///
/// The kernel detaches a device that is open elsewhere only when it is closed there. This waits until
/// it has, for up to 5 seconds, and then answers [`Error::Busy`]; the device will still be detached
/// as soon as that can be. One that refused discards still does then: [take it away](take_away_spoilt) later.
pub fn detach(loopdev: &Loop) -> Result<()> {
    let path = &loopdev.path;
    // Watched before the kernel is asked, so that no close is missed.
    let closes = watch(path);
    let device = match File::open(path) {
        Err(error) if node::is_gone(&error) => return Ok(()),
        device => device.map_err(Error::io("open", path))?,
    };
    match sys::loops::status(&device) {
        Ok(info) if (info.device, info.inode) == (loopdev.device, loopdev.inode) => {}
        Ok(_) | Err(Errno::NXIO) => return Ok(()),
        // The image's disk does not answer. It is the same image as long as its path is.
        Err(_) if node::backing(loopdev.number).as_ref() == Some(&loopdev.backing) => {}
        Err(errno) => return Err(Error::io("ask for the status of", path)(errno)),
    }
    let backing = node::backing(loopdev.number);
    let refused_discards = node::refuses_discards(loopdev.number);
    match sys::loops::clear(&device) {
        Ok(()) | Err(Errno::NXIO) => {}
        Err(errno) => return Err(Error::io("detach", path)(errno)),
    }
    // Kernels of late clear a device only on its last close, and this may be it.
    drop(device);
    wait(loopdev, backing.as_deref(), closes.as_ref())?;
    if refused_discards {
        take_away_spoilt(loopdev.number);
    }
    tracing::debug!(device = ?path, "detached");
    Ok(())
}

/// Until the file in `/sys` is gone or names another image. The kernel announces a close just before
/// it acts on it, hence the growing pauses besides the events.
fn wait(loopdev: &Loop, backing: Option<&Path>, closes: Option<&OwnedFd>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
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

/// Closes of the device, as readiness of a descriptor; without it there are still the pauses.
fn watch(path: &Path) -> Option<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    inotify::add_watch(&watch, path, WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE).ok()?;
    Some(watch)
}

/// The next close, or the end of `pause`.
fn next_close(closes: Option<&OwnedFd>, pause: Duration) {
    let mut events: Vec<_> =
        closes.into_iter().map(|watch| PollFd::new(watch, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
    // An interrupted wait is a short one.
    let _ = poll(&mut events, Some(&timeout));
    if let Some(watch) = closes {
        let mut buffer = [MaybeUninit::uninit(); 512];
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        while reader.next().is_ok() {}
    }
}
