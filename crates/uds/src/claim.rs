//! Claims a socket path, and removes it at the end.
//!
//! Three things must never happen: a live server loses its path unless takeover was requested, a
//! file that is not a socket is deleted, a client finds the path with wider permissions than
//! requested or before a server listens on it.
//!
//! So a socket is bound under a hidden name in the same folder (plugin managers skip those), gets
//! its mode, listens, and is renamed onto the path, which replaces a dead socket in the same step.
//! Looking at the old socket and renaming are two steps. Two programs that start at once could both
//! find it dead, and the second would then take the path from the first. An exclusive `flock` on
//! the folder makes them one step for all programs that claim this way; it leaves no file behind
//! and ends with its process. A server needs no lock to remove its path: while it listens, no claim
//! succeeds.

use std::{
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};

use crate::{ListenError, address};

/// A claim takes some tens of microseconds; a longer lock is held by another kind of program.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// A path that leads to our socket. Dropping it removes the path, if the path still leads to our
/// socket and `removes` is set.
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
    /// Whether the server removes the file when it stops. A service manager keeps the files of its
    /// sockets.
    pub remove: bool,
}

impl Claim {
    /// Makes `path` lead to a new socket that listens with `mode`.
    pub(crate) fn take(
        path: &Path,
        mode: u32,
        take_over: bool,
    ) -> Result<(OwnedFd, Self), ListenError> {
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
                tracing::info!(socket = %path.display(), "taking over served socket");
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
            let claim = Self { path: path.to_owned(), file };
            Ok((socket, claim))
        });
        if listening.is_err() {
            // Report the first error; the next claim removes a draft that stays.
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
            tracing::warn!(socket = %self.path.display(), %error, "failed to remove socket");
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
        // The new file starts with the descriptor's mode as set before bind, so it never has a
        // wider one. The umask may narrow it; chmod undoes that.
        rustix::fs::fchmod(&socket, mode)?;
        address::bind(&socket, self.folder_path, self.folder, &self.name)?;
        rustix::fs::chmodat(self.folder, &self.name, mode, AtFlags::empty())?;
        rustix::net::listen(&socket, BACKLOG)?;
        let stat = rustix::fs::statat(self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((socket, stat))
    }

    /// Removes the draft that an interrupted claim left.
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

/// Fails unless the path is free or leads to a socket that no process serves.
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
            tracing::info!(socket = %path.display(), "replacing socket that no process serves");
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full backlog means that a server listens.
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
