//! Sockets that the process inherited, as from systemd.

use std::{
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use crate::{ListenError, SocketFile, address};

/// The path that a unix socket is bound to; `None` for other sockets and those without a path.
pub fn bound_path(socket: &impl AsFd) -> Option<PathBuf> {
    let address = rustix::net::getsockname(socket).ok()?;
    let address = SocketAddrUnix::try_from(address).ok()?;
    let path = address.path_bytes()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
}

/// The file of a socket that the service manager bound to `path`.
pub(crate) fn check(socket: &impl AsFd, path: &Path) -> Result<SocketFile, ListenError> {
    check_listening(socket, path)?;
    let refuse = |reason| ListenError::Inherited { path: path.to_owned(), reason };
    let bound = bound_path(socket).ok_or_else(|| refuse("it has no path".to_owned()))?;
    if !is_same(&bound, path) {
        return Err(refuse(format!(
            "it is bound to {}: name the same path in the socket unit and in the flag",
            bound.display()
        )));
    }
    let stat = rustix::fs::lstat(path).map_err(|error| {
        refuse(format!("its file cannot be read ({error}): restart the socket unit"))
    })?;
    Ok(SocketFile { device: stat.st_dev, inode: stat.st_ino, remove: false })
}

/// Refuses a file that is not a listening stream socket.
pub(crate) fn check_listening(socket: &impl AsFd, path: &Path) -> Result<(), ListenError> {
    let is_usable = || -> io::Result<bool> {
        let is_stream = sockopt::socket_domain(socket)? == AddressFamily::UNIX
            && sockopt::socket_type(socket)? == SocketType::STREAM;
        let listens = sockopt::socket_acceptconn(socket)?;
        rustix::io::ioctl_fionbio(socket, true)?;
        Ok(is_stream && listens)
    };
    let reason = match is_usable() {
        Ok(true) => return Ok(()),
        Ok(false) => "it is not a listening stream socket: use ListenStream= and Accept=no".into(),
        Err(error) => error.to_string(),
    };
    Err(ListenError::Inherited { path: path.to_owned(), reason })
}

/// Whether two paths name one file, also where a folder has two names, as `/run` and `/var/run`.
fn is_same(a: &Path, b: &Path) -> bool {
    let split = |path| address::split(path).ok();
    let (Some((folder_a, name_a)), Some((folder_b, name_b))) = (split(a), split(b)) else {
        return false;
    };
    let folder = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    name_a == name_b && (folder_a == folder_b || folder(folder_a) == folder(folder_b))
}
