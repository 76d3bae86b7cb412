//! The files of a pool, opened as what they have to be: regular files.
//!
//! Anybody with access to the disk may leave a symlink or a named pipe under the name of an image. A symlink leads to a file
//! of somebody else, and a pipe keeps its reader waiting.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// Opens a regular file to read it. Follows no symlink, and waits for nobody.
///
/// # Errors
/// When it is something else, or cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(File::options().read(true), path)
}

/// Opens a regular file to read and write it. Follows no symlink, and waits for nobody.
///
/// # Errors
/// When it is something else, or cannot be opened.
pub(crate) fn open_to_write(path: &Path) -> io::Result<File> {
    open_with(File::options().read(true).write(true), path)
}

fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file =
        options.custom_flags(flags).open(path).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::LOOP | Errno::NXIO) => not_regular(),
                _ => error,
            }
        })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

/// Reads a small regular file.
///
/// # Errors
/// When it is something else, or cannot be read.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes a file whose space is to be free at once: a filesystem may take its time with the blocks of an unlinked file. A
/// symlink is removed, not what it leads to; a file with a second name keeps its bytes. One that is gone is removed.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn free(path: &Path) -> io::Result<()> {
    if let Ok(file) = open_to_write(path)
        && file.metadata().is_ok_and(|it| it.nlink() == 1)
    {
        // Where a full filesystem refuses this, the unlink below may still work.
        let _ = file.set_len(0);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn not_regular() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is a symlink, a named pipe or a device; expected a regular file: move it away",
    )
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_else_is_emptied() {
        let folder = tempfile::tempdir().expect("folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("target"), "precious").expect("written");
        std::os::unix::fs::symlink(path("target"), path("link")).expect("linked");
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("made");
        for name in ["link", "pipe"] {
            for opened in [open(&path(name)), open_to_write(&path(name))] {
                let refused = opened.expect_err(name).to_string();
                assert!(refused.contains("expected a regular file"), "{refused}");
            }
            free(&path(name)).expect("removed");
            assert!(fs::symlink_metadata(path(name)).is_err(), "{name} is left");
        }
        fs::hard_link(path("target"), path("second")).expect("linked");
        free(&path("second")).expect("removed");
        assert_eq!(read(&path("target")).expect("read"), b"precious");
        free(&path("target")).expect("removed");
        free(&path("target")).expect("gone already");
    }
}
