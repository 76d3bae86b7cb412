//! Opens and creates the files of pools and of the state folder safely: only regular files that
//! belong to the driver.
//!
//! Anybody with access to the disk can place a symlink, a hard link or a named pipe under the name
//! of a file. A link leads to a foreign file, and opening a pipe blocks. So only these functions
//! open and create such files: they follow no symlink, never block on a pipe, write to no file with
//! a second name, and create a file only where the name is free. `cargo xtask tidy` finds code that
//! bypasses them.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat},
    io::Errno,
};

use crate::{error::Error, private};

/// Maximum size of files that are read whole. Ours have some hundred bytes; a foreign file must not
/// exhaust memory.
const MAX_SIZE: u64 = 1 << 20;

/// Opens a regular file for reading.
///
/// # Errors
/// If it is not a regular file, or cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_at(CWD, path, OFlags::RDONLY)
}

/// Opens a regular file for reading and writing.
///
/// # Errors
/// If it is not a regular file, has a second name, or cannot be opened.
pub(crate) fn open_to_write(path: &Path) -> io::Result<File> {
    open_to_write_in(CWD, path)
}

/// Like [`open_to_write`], relative to a folder.
pub(crate) fn open_to_write_in(folder: impl AsFd, name: impl AsRef<Path>) -> io::Result<File> {
    open_at(folder, name, OFlags::RDWR)
}

/// Opens a regular file for reading and writing; creates a missing one, for root only.
///
/// # Errors
/// If it is not a regular file, has a second name, or cannot be opened or created.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    open_or_create_in(CWD, path)
}

/// Like [`open_or_create`], relative to a folder.
pub(crate) fn open_or_create_in(folder: impl AsFd, name: impl AsRef<Path>) -> io::Result<File> {
    open_at(folder, name, OFlags::RDWR | OFlags::CREATE)
}

/// Creates a file for reading and writing, for root only.
///
/// # Errors
/// If the name is taken, or the file cannot be created.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    create_in(CWD, path)
}

fn create_in(folder: impl AsFd, name: impl AsRef<Path>) -> io::Result<File> {
    open_at(folder, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
}

/// Creates a file, replacing one of the same name, such as one that a crash left. A link is
/// removed, not its target.
///
/// # Errors
/// If the name is taken by a folder, or the file cannot be created.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    create_anew_in(CWD, path)
}

/// Like [`create_anew`], relative to a folder.
pub(crate) fn create_anew_in(folder: impl AsFd, name: impl AsRef<Path>) -> io::Result<File> {
    let (folder, name) = (folder.as_fd(), name.as_ref());
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => create_in(folder, name),
        Err(error) => Err(error.into()),
    }
}

fn open_at(folder: impl AsFd, name: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
    // O_NONBLOCK: opening a pipe without a peer would block.
    let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(private::FILE);
    let opened = openat(folder, name.as_ref(), flags | safe, mode);
    let file = File::from(opened.map_err(|error| match error {
        Errno::LOOP | Errno::NXIO | Errno::ISDIR => not_regular(),
        error => error.into(),
    })?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(not_regular());
    }
    if flags.contains(OFlags::RDWR) && found.nlink() > 1 {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "it has a second name (a hard link) and may belong to someone else: move it away",
        ));
    }
    Ok(file)
}

/// Reads a small regular file.
///
/// # Errors
/// If it is not a regular file, is too large, or cannot be read.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            format!(
                "it is larger than {MAX_SIZE} bytes, so that the driver did not write it: move it away"
            ),
        ));
    }
    Ok(bytes)
}

/// Writes a file atomically. Its name is durable only after a flush of its folder.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let fresh = Path::new(&name);
    let written = create_anew(fresh).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(Error::file("write", fresh))?;
    fs::rename(fresh, path).map_err(Error::file("rename", fresh))
}

/// Removes a file and frees its space at once: a filesystem may free the blocks of an unlinked file
/// later. A symlink is removed, not its target; a file with a second name keeps its content.
/// Succeeds if the file does not exist.
///
/// # Errors
/// If it cannot be removed.
pub(crate) fn free(path: &Path) -> io::Result<()> {
    if let Ok(file) = open_to_write(path) {
        // If a full filesystem refuses the truncation, the unlink below may still work.
        let _ = file.set_len(0);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn not_regular() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidInput,
        "it is a symlink, a named pipe, a folder or a device; expected a regular file: move it away",
    )
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_of_the_driver_are_opened_and_nothing_else_is_emptied() {
        let folder = tempfile::tempdir().expect("folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("target"), "precious").expect("written");
        std::os::unix::fs::symlink(path("target"), path("link")).expect("linked");
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("made");
        for name in ["link", "pipe"] {
            let path = path(name);
            for opened in [open(&path), open_to_write(&path), open_or_create(&path)] {
                let refused = opened.expect_err(name).to_string();
                assert!(refused.contains("expected a regular file"), "{refused}");
            }
            create(&path).expect_err(name);
            free(&path).expect("removed");
            assert!(fs::symlink_metadata(&path).is_err(), "{name} is left");
        }
        fs::hard_link(path("target"), path("second")).expect("linked");
        for opened in [open_to_write(&path("second")), open_or_create(&path("second"))] {
            let refused = opened.expect_err("two names").to_string();
            assert!(refused.contains("second name"), "{refused}");
        }
        free(&path("second")).expect("removed");
        assert_eq!(read(&path("target")).expect("read"), b"precious");
        free(&path("target")).expect("removed");
        free(&path("target")).expect("gone already");
    }

    #[test]
    fn a_file_larger_than_any_of_the_driver_is_not_read_into_memory() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("note.json");
        fs::write(&path, vec![b' '; 100_000]).expect("written");
        assert_eq!(read(&path).expect("read").len(), 100_000);
        File::options().write(true).open(&path).and_then(|it| it.set_len(1 << 40)).expect("long");
        let refused = read(&path).expect_err("too large").to_string();
        assert!(refused.contains("larger than"), "{refused}");
    }

    #[test]
    fn a_file_is_made_in_place_of_links_and_pipes_and_what_they_lead_to_stays() {
        let folder = tempfile::tempdir().expect("folder");
        let (file, fresh) = (folder.path().join("file"), folder.path().join("file.new"));
        let target = folder.path().join("target");
        fs::write(&target, "precious").expect("written");
        let put: [&dyn Fn(); 3] = [
            &|| std::os::unix::fs::symlink(&target, &fresh).expect("linked"),
            &|| fs::hard_link(&target, &fresh).expect("linked"),
            &|| mknodat(CWD, &fresh, FileType::Fifo, Mode::RWXU, 0).expect("made"),
        ];
        for put in put {
            put();
            write(&file, b"own").expect("written");
            assert_eq!(read(&file).expect("read"), b"own");
            assert_eq!(read(&target).expect("read"), b"precious");
        }
    }
}
