//! A bound unix socket.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use crate::claim::Claim;

/// How to listen.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Permission bits of the socket, whatever the umask. 0600 unless set: kubelet and sidecars
    /// run as root, and who can connect can make the driver act.
    pub mode: u32,
    /// Accept clients that send a percent-encoded path as `:authority`, as kubelet does. On unless
    /// set: only a listener that no stranger dials can do without.
    pub repair_authority: bool,
    /// Take the path also from a process that serves it: that one keeps the connections that it has,
    /// and new ones come to us. Off unless set.
    pub take_over: bool,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { mode: 0o600, repair_authority: true, take_over: false }
    }
}

/// A socket that is bound and listening, and that removes its path when it goes, unless another
/// file has taken that place.
#[derive(Debug)]
pub struct Listener {
    // Dropped in this order: the path goes while the socket still listens (see `claim`).
    pub(crate) claim: Claim,
    pub(crate) socket: UnixListener,
    pub(crate) options: ListenOptions,
}

impl Listener {
    /// Binds `path`, whatever its length. A socket there that nobody serves is replaced; a served
    /// one, unless it is to be taken over, and any other file are left alone and are an error.
    ///
    /// Needs to be called inside a tokio runtime.
    pub fn bind(path: &Path, options: &ListenOptions) -> Result<Listener, ListenError> {
        let (socket, claim) = Claim::take(path, options.mode, options.take_over)?;
        let socket = UnixListener::from_std(StdListener::from(socket))
            .map_err(|source| ListenError::Io { path: path.to_owned(), step: "watch", source })?;
        Ok(Listener { claim, socket, options: *options })
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.claim.path
    }

    /// Whether the path still leads to this socket.
    pub fn is_still_ours(&self) -> bool {
        self.claim.holds()
    }
}

/// Why a path could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process answers there.
    #[error("a live peer serves {}: stop it, or choose another path", path.display())]
    Live {
        /// The socket.
        path: PathBuf,
    },
    /// Something else has the name.
    #[error("{} exists and is not a socket: remove it, or choose another path", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The folder cannot be opened.
    #[error("cannot listen on {}: cannot open its folder {}", path.display(), folder.display())]
    Folder {
        /// The socket.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
}
