//! Taking a socket path, and giving it back.
//!
//! Three things must never happen: a living server loses its path to one that did not ask for it, a file that is no socket is
//! deleted, a client finds the path with wider rights than asked for or with nobody behind it.
//!
//! So a socket is bound under a dot name beside its path (plugin managers skip those), gets its
//! mode, listens, and is renamed onto the path, which replaces a dead socket in the same step.
//! Looking at the old socket and renaming are two steps. Two programs that start at once could
//! both find it dead, and the second would then take the path from the first. An exclusive
//! `flock` on the folder makes them one step for all who claim this way; it leaves no file behind
//! and ends with its holder. A server needs no lock to give its path back: while it listens, no
//! claim succeeds.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};

use crate::{ListenError, address};

/// A claim takes some tens of microseconds; whoever holds a folder for longer is not one of us.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// A path that leads to our socket. Dropped, it removes the path if that still holds and it is
/// ours to remove.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) path: PathBuf,
    pub(crate) file: SocketFile,
}

/// The file of a bound socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFile {
    /// The filesystem that it is on.
    pub device: u64,
    /// Its inode number there.
    pub inode: u64,
    /// Whether whoever serves the socket removes the file in the end. A service manager keeps the
    /// files of its sockets.
    pub remove: bool,
}

impl Claim {
    /// Makes `path` lead to a new socket that listens with `mode`.
    pub(crate) fn take(
        path: &Path,
        mode: u32,
        take_over: bool,
    ) -> Result<(OwnedFd, Claim), ListenError> {
        let failed = |step| move |source| ListenError::Io { path: path.to_owned(), step, source };
        let (folder_path, name) = address::split(path).map_err(failed("bind"))?;
        let folder = rustix::fs::open(
            folder_path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| ListenError::Folder {
            path: path.to_owned(),
            folder: folder_path.to_owned(),
            source: error.into(),
        })?;
        lock(&folder, path)?;
        match refuse_if_taken(path, &folder) {
            Err(ListenError::Live { .. }) if take_over => {
                tracing::info!(path = %path.display(), "taking over a socket that is served");
            }
            refused => refused?,
        }

        let mut draft = OsString::from(".");
        draft.push(name);
        draft.push(".new");
        let draft = Draft { folder_path, folder: &folder, name: draft };
        draft.discard().map_err(failed("remove the draft of"))?;
        let listening = draft.listen(mode).and_then(|(socket, stat)| {
            rustix::fs::renameat(&folder, &draft.name, &folder, name)?;
            let file = SocketFile { device: stat.st_dev, inode: stat.st_ino, remove: true };
            let claim = Claim { path: path.to_owned(), file };
            Ok((socket, claim))
        });
        if listening.is_err() {
            // The first error is the one to tell; a draft that stays is removed by the next claim.
            let _ = draft.discard();
        }
        listening.map_err(failed("bind"))
    }

    /// Whether the path still leads to the socket that was bound. The kernel keeps the inode of a
    /// bound socket, so its number cannot come back under another file.
    pub(crate) fn holds(&self) -> bool {
        Claim::leads(&self.path, self.file)
    }

    /// Whether a path leads to this file.
    pub(crate) fn leads(path: &Path, file: SocketFile) -> bool {
        rustix::fs::lstat(path)
            .is_ok_and(|stat| stat.st_dev == file.device && stat.st_ino == file.inode)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.file.remove
            && self.holds()
            && let Err(error) = rustix::fs::unlink(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// A socket under its temporary name.
struct Draft<'a> {
    folder_path: &'a Path,
    folder: &'a OwnedFd,
    name: OsString,
}

impl Draft<'_> {
    fn listen(&self, mode: u32) -> io::Result<(OwnedFd, Stat)> {
        let mode = Mode::from_raw_mode(mode & 0o777);
        let socket = address::stream_socket()?;
        // Before bind, the mode of the descriptor is what the new file starts from: there is no
        // moment at which it is wider. The umask can still narrow it, which chmod then undoes.
        rustix::fs::fchmod(&socket, mode)?;
        address::bind(&socket, self.folder_path, self.folder, &self.name)?;
        rustix::fs::chmodat(self.folder, &self.name, mode, AtFlags::empty())?;
        rustix::net::listen(&socket, BACKLOG)?;
        let stat = rustix::fs::statat(self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((socket, stat))
    }

    /// Removes what a claim left that was cut short.
    fn discard(&self) -> io::Result<()> {
        match rustix::fs::statat(self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_socket(&stat) => {
                Ok(rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty())?)
            }
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} is in the way and is not a socket", self.name.display()),
            )),
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Cut to `net.core.somaxconn` by the kernel.
const BACKLOG: i32 = 4096;

/// Waits for other claims in the folder. There is no event for a lock that becomes free and its
/// holders are quick, so this yields to them instead of sleeping.
fn lock(folder: &OwnedFd, path: &Path) -> Result<(), ListenError> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR)
                if Instant::now() < deadline =>
            {
                std::thread::yield_now();
            }
            Err(error) => {
                return Err(ListenError::Io {
                    path: path.to_owned(),
                    step: "lock the folder of",
                    source: error.into(),
                });
            }
        }
    }
}

/// An error unless the path is free or leads to a socket that nobody serves.
fn refuse_if_taken(path: &Path, folder: &OwnedFd) -> Result<(), ListenError> {
    let inspect = |source| ListenError::Io { path: path.to_owned(), step: "inspect", source };
    let (_, name) = address::split(path).map_err(inspect)?;
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if is_socket(&stat) => {}
        Ok(_) => return Err(ListenError::NotASocket { path: path.to_owned() }),
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(inspect(error.into())),
    }
    match address::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "taking over a socket that nobody serves");
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full backlog is a server too.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(ListenError::Live { path: path.to_owned() })
        }
        Err(error) => Err(inspect(error)),
        Ok(_) => Err(ListenError::Live { path: path.to_owned() }),
    }
}

fn is_socket(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
}
