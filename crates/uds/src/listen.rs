//! A bound unix socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::claim::Claim;
use crate::{Clients, SocketFile, inherited};

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
    pub(crate) socket: Arc<UnixListener>,
    pub(crate) options: ListenOptions,
    pub(crate) released: CancellationToken,
    /// Cancelled once connections are to finish, too.
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
    /// Binds `path`, whatever its length. A socket there that nobody serves is replaced; a served
    /// one, unless it is to be taken over, and any other file are left alone and are an error.
    ///
    /// Needs to be called inside a tokio runtime.
    pub fn bind(path: &Path, options: &ListenOptions) -> Result<Listener, ListenError> {
        let (socket, claim) = Claim::take(path, options.mode, options.take_over)?;
        Listener::new(socket, claim, options)
    }

    /// Serves a socket that the service manager bound to `path`. The file stays when this listener
    /// goes.
    ///
    /// Needs to be called inside a tokio runtime.
    ///
    /// # Errors
    /// When it does not listen, or is bound to another path.
    pub fn inherit(
        socket: OwnedFd,
        path: &Path,
        options: &ListenOptions,
    ) -> Result<Listener, ListenError> {
        let file = inherited::check(&socket, path)?;
        Listener::new(socket, Claim { path: path.to_owned(), file }, options)
    }

    /// Serves a socket that another process of this program bound to `path` as `file`, and passed on.
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
    ) -> Result<Listener, ListenError> {
        inherited::check_listening(&socket, path)?;
        Listener::new(socket, Claim { path: path.to_owned(), file }, options)
    }

    fn new(
        socket: OwnedFd,
        claim: Claim,
        options: &ListenOptions,
    ) -> Result<Listener, ListenError> {
        let socket = UnixListener::from_std(StdListener::from(socket)).map_err(|source| {
            ListenError::Io { path: claim.path.clone(), step: "watch", source }
        })?;
        let socket = Arc::new(socket);
        let (released, dismissed, clients) = Default::default();
        Ok(Listener { claim, socket, options: *options, released, dismissed, clients })
    }

    /// Removes the socket's file in the end, or leaves it to whoever else serves it.
    pub fn remove_file(&mut self, remove: bool) {
        self.claim.file.remove = remove;
    }

    /// Counts the calls of [`serve_raw`](Listener::serve_raw) there.
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

    /// Accepts no more connections: the socket and its file are another process's. Connections that there are go on until
    /// [`release`](ListenerHandle::release).
    pub fn stop_accepting(&self) {
        self.released.cancel();
    }

    /// Leaves the socket and its file to another process. Connections are asked to finish their
    /// calls and to make no new ones, and have all the time that these take, until the listener is
    /// told to stop.
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
    /// A socket that came with the process is not the one to serve.
    #[error("cannot serve {} on the socket that was passed to this process: {reason}", path.display())]
    Inherited {
        /// The path to serve.
        path: PathBuf,
        /// What is wrong with the socket, and what to do.
        reason: String,
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
