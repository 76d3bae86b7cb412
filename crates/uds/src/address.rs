//! Socket paths of any length.
//!
//! The kernel accepts 107 bytes. Longer paths occur (`/var/lib/kubelet` under a long root); they
//! are reached through `/proc/self/fd/N/name`, where N is the opened folder, so only the last part
//! of the path counts.

use std::{
    ffi::OsStr,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

/// The longest path in `sun_path`, without the terminating NUL.
const LONGEST: usize = 107;

/// Connects without waiting. On a unix socket the outcome is known at once: connected, refused,
/// not there, or `WouldBlock` when the listener's backlog is full.
pub(crate) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = stream_socket()?;
    if fits(path) {
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    } else {
        let (folder, name) = split(path)?;
        let folder = rustix::fs::open(
            folder,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::net::connect(&socket, &within(&folder, name)?)?;
    }
    Ok(socket)
}

/// Binds `socket` to `name` in the opened `folder`, whose path is `folder_path`.
pub(crate) fn bind(
    socket: &OwnedFd,
    folder_path: &Path,
    folder: &OwnedFd,
    name: &OsStr,
) -> io::Result<()> {
    // `ss -x` shows the address as it was bound, so use the plain path where it fits.
    let plain = folder_path.join(name);
    let address = if fits(&plain) { SocketAddrUnix::new(&plain)? } else { within(folder, name)? };
    Ok(rustix::net::bind(socket, &address)?)
}

/// A non-blocking stream socket, not yet bound or connected.
pub(crate) fn stream_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// The folder and the name of a socket path.
pub(crate) fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in a file name")
    })?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Ok((folder, name))
}

fn fits(path: &Path) -> bool {
    path.as_os_str().len() <= LONGEST
}

fn within(folder: impl AsFd, name: &OsStr) -> io::Result<SocketAddrUnix> {
    let folder = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    let short = PathBuf::from(folder).join(name);
    if !fits(&short) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidFilename,
            format!(
                "the name of the socket has {} bytes, and at most {} can be bound or reached: \
                 shorten it",
                name.len(),
                LONGEST + name.len() - short.as_os_str().len(),
            ),
        ));
    }
    Ok(SocketAddrUnix::new(&short)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_into_folder_and_name() {
        let (folder, name) = split(Path::new("/a/b.sock")).unwrap();
        assert_eq!((folder, name), (Path::new("/a"), OsStr::new("b.sock")));
        let (folder, name) = split(Path::new("b.sock")).unwrap();
        assert_eq!((folder, name), (Path::new("."), OsStr::new("b.sock")));
        assert!(split(Path::new("/")).is_err());
    }

    #[test]
    fn a_name_over_the_limit_is_named() {
        let name = "n".repeat(120);
        let error = connect(&Path::new("/tmp").join(name)).unwrap_err().to_string();
        assert!(error.contains("120 bytes"), "{error}");
    }
}
