//! A bound unix socket.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener as StdListener,
    },
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::{Clients, SocketFile, claim::Claim, inherited};

/// Options of a [`Listener`].
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Permission bits of the socket, independent of the umask. 0600 unless set: kubelet and
    /// sidecars run as root, and a process that can connect can make the driver act.
    pub mode: u32,
    /// Accepts clients that send a percent-encoded path as `:authority`, as kubelet does. On unless
    /// set; switch it off only for listeners that other programs never dial.
    pub repair_authority: bool,
    /// Takes over the path from a process that serves it. That process keeps its connections; new
    /// connections reach this listener. Off unless set.
    pub take_over: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { mode: 0o600, repair_authority: true, take_over: false }
    }
}

/// A bound and listening socket. Dropping it removes its path, unless another file has replaced the
/// socket.
#[derive(Debug)]
pub struct Listener {
    // Dropped in this order: the path is removed while the socket still listens (see `claim`).
    pub(crate) claim: Claim,
    pub(crate) socket: Arc<UnixListener>,
    pub(crate) options: ListenOptions,
    pub(crate) released: CancellationToken,
    /// Cancelled when connections are to finish their calls.
    pub(crate) dismissed: CancellationToken,
    pub(crate) clients: Clients,
}

/// Passes the socket of a [`Listener`] on to another process while it is served.
#[derive(Clone, Debug)]
pub struct ListenerHandle {
    socket: Weak<UnixListener>,
    file: SocketFile,
    released: CancellationToken,
    dismissed: CancellationToken,
}

impl Listener {
    /// Binds `path`, whatever its length. Replaces a socket that no process serves. A socket that
    /// is served, unless `take_over` is set, and any other file stay and are an error.
    ///
    /// Needs to be called inside a tokio runtime.
    pub fn bind(path: &Path, options: &ListenOptions) -> Result<Self, ListenError> {
        let (socket, claim) = Claim::take(path, options.mode, options.take_over)?;
        Self::new(socket, claim, options)
    }

    /// Serves a socket that the service manager bound to `path`. Dropping this listener leaves the
    /// file in place.
    ///
    /// Needs to be called inside a tokio runtime.
    ///
    /// # Errors
    /// When it does not listen, or is bound to another path.
    pub fn inherit(
        socket: OwnedFd,
        path: &Path,
        options: &ListenOptions,
    ) -> Result<Self, ListenError> {
        let file = inherited::check(&socket, path)?;
        Self::new(socket, Claim { path: path.to_owned(), file }, options)
    }

    /// Serves a socket that another process of this program bound to `path` as `file`, and passed
    /// on.
    ///
    /// Needs to be called inside a tokio runtime.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn adopt(
        socket: OwnedFd,
        path: &Path,
        file: SocketFile,
        options: &ListenOptions,
    ) -> Result<Self, ListenError> {
        inherited::check_listening(&socket, path)?;
        Self::new(socket, Claim { path: path.to_owned(), file }, options)
    }

    fn new(socket: OwnedFd, claim: Claim, options: &ListenOptions) -> Result<Self, ListenError> {
        let socket = UnixListener::from_std(StdListener::from(socket)).map_err(|source| {
            ListenError::Io { path: claim.path.clone(), step: "watch", source }
        })?;
        let socket = Arc::new(socket);
        let (released, dismissed, clients) = Default::default();
        Ok(Self { claim, socket, options: *options, released, dismissed, clients })
    }

    /// Sets whether dropping the listener removes the socket's file, or leaves it to another
    /// process that serves it.
    pub fn remove_file(&mut self, remove: bool) {
        self.claim.file.remove = remove;
    }

    /// Counts the calls of [`serve_raw`](Listener::serve_raw) in `clients`.
    pub fn count_clients(&mut self, clients: Clients) {
        self.clients = clients;
    }

    /// A handle that passes the socket on.
    pub fn handle(&self) -> ListenerHandle {
        let (socket, file) = (Arc::downgrade(&self.socket), self.claim.file);
        let (released, dismissed) = (self.released.clone(), self.dismissed.clone());
        ListenerHandle { socket, file, released, dismissed }
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

impl ListenerHandle {
    /// The socket, for another process to serve as well.
    ///
    /// # Errors
    /// When the listener is gone.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "the socket is closed");
        self.socket.upgrade().ok_or_else(gone)?.as_fd().try_clone_to_owned()
    }

    /// Whether `path` still leads to the socket.
    pub fn is_in_place(&self, path: &Path) -> bool {
        Claim::leads(path, self.file)
    }

    /// The socket's file.
    pub fn file(&self) -> SocketFile {
        self.file
    }

    /// Accepts no more connections, because another process owns the socket and its file now.
    /// Existing connections continue until [`release`](ListenerHandle::release).
    pub fn stop_accepting(&self) {
        self.released.cancel();
    }

    /// Leaves the socket and its file to another process. Asks connections to finish their calls
    /// and to make no new ones; they have until the listener is stopped.
    pub fn release(&self) {
        self.released.cancel();
        self.dismissed.cancel();
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
    /// A file that is not a socket has the name.
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
    /// An inherited socket is not the one to serve.
    #[error("cannot serve {} on the socket that was passed to this process: {reason}", path.display())]
    Inherited {
        /// The path to serve.
        path: PathBuf,
        /// The fault of the socket, and its remedy.
        reason: String,
    },
    /// A system call failed.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The step that failed.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
}
