//! Modes of files and folders: only root may read them, since images hold data of all users of the
//! node.
//!
//! Files and folders are created with their final mode, so that no other user can open them in
//! between. Opening a pool corrects the modes that a driver of an older version left.

use std::{
    fs::{self, DirBuilder, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::Path,
};

use crate::error::Error;

/// Mode of folders.
const FOLDER: u32 = 0o700;
/// Mode of files and sockets.
pub(crate) const FILE: u32 = 0o600;

/// Names of the driver's own files in a pool's folder or in the folder of a pool image.
const OWN: [&str; 16] = [
    "admin.sock",
    "admin.sock.new",
    "ballast",
    "ephemeral",
    "lost+found",
    "partial",
    "pool",
    "pool.img",
    "pool.json",
    "pool.json.new",
    "quarantine",
    "reserve",
    "snapshots",
    "state.redb",
    "undo",
    "volumes",
];

/// Creates a folder that a person configured, with missing parents. An existing folder, or a
/// symlink to one, is not changed.
///
/// # Errors
/// If it cannot be created.
pub fn create_folder(folder: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(FOLDER).create(folder);
    made.map_err(Error::file("create folder", folder))
}

/// Creates a folder in which the driver removes unknown files. Refuses a symlink, which would lead
/// to foreign files.
///
/// # Errors
/// If it cannot be created, or the name is taken by a symlink or a file.
pub(crate) fn create_own_folder(folder: &Path) -> Result<(), Error> {
    let made = match DirBuilder::new().mode(FOLDER).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::symlink_metadata(folder)
            .and_then(|found| match found.is_dir() {
                true => Ok(()),
                false => Err(not_own("it is a symlink or a file")),
            }),
        made => made,
    };
    made.map_err(Error::file("use folder", folder))
}

/// Creates a folder of a pool, or corrects the modes of an existing one and its files.
///
/// # Errors
/// If it cannot be created, the name is taken by a symlink or a file, or something is mounted
/// there: images are renamed between the folders of a pool.
pub(crate) fn create_pool_folder(folder: &Path, root: &Path) -> Result<(), Error> {
    create_own_folder(folder)?;
    let device =
        |path: &Path| fs::metadata(path).map(|it| it.dev()).map_err(Error::file("look at", path));
    if device(folder)? != device(root)? {
        return Err(Error::file("use folder", folder)(not_own(
            "another filesystem is mounted there",
        )));
    }
    set(folder, FOLDER)?;
    for entry in entries(folder)? {
        mend_file(&entry)?;
    }
    Ok(())
}

fn not_own(found: &str) -> io::Error {
    let message = format!("{found}; expected a folder of the driver's own: move it away");
    io::Error::new(ErrorKind::NotADirectory, message)
}

/// Corrects the modes of the driver's files in the configured folder, and of the folder itself if
/// it has no other files: a folder that others use, too, stays open to them.
pub(crate) fn mend_root(root: &Path) -> Result<(), Error> {
    let (own, foreign): (Vec<_>, Vec<_>) = entries(root)?.into_iter().partition(is_own);
    for entry in &own {
        mend_file(entry)?;
    }
    if foreign.is_empty() { set(root, FOLDER) } else { Ok(()) }
}

/// Whether a pool's folder has files that are not the driver's.
pub(crate) fn has_foreign_files(root: &Path) -> Result<bool, Error> {
    Ok(!entries(root)?.iter().all(is_own))
}

fn is_own(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    OWN.contains(&name.as_ref())
        || name.starts_with("state.redb.old-")
        || name == ".pool.img.partial"
}

/// Corrects the mode of a file, except one with a second name, which may be foreign. A file that a
/// damaged disk cannot stat is skipped: nobody can open it, and it must not block the use of other
/// files.
fn mend_file(entry: &fs::DirEntry) -> Result<(), Error> {
    let path = entry.path();
    match entry.metadata() {
        Ok(file) if file.is_file() && file.nlink() == 1 => set(&path, FILE),
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "failed to stat file of pool");
            Ok(())
        }
    }
}

fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, Error> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<_>>);
    entries.map_err(Error::file("list", folder))
}

/// Sets a mode only if it differs, so that a correct pool is not written to.
fn set(path: &Path, mode: u32) -> Result<(), Error> {
    let is = fs::metadata(path).map_err(Error::file("look at", path))?.permissions().mode();
    if is & 0o7777 == mode {
        return Ok(());
    }
    let changed = fs::set_permissions(path, Permissions::from_mode(mode));
    changed.map_err(Error::file("set the mode of", path))
}
