//! Files and folders that only root can read: images hold the data of every user of the node.
//!
//! What is made has its mode from the first moment, so that there is none in which somebody else can open it. What a
//! driver of an older version made is mended when its pool is opened.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::error::Error;

/// The mode of folders.
const FOLDER: u32 = 0o700;
/// The mode of files and sockets.
pub(crate) const FILE: u32 = 0o600;

/// What a pool's folder, or the folder of a pool's image, holds besides foreign files.
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

/// Makes a folder that a person named, and those above it that are missing; one that exists, or a symlink to one, is left as it
/// is.
///
/// # Errors
/// When it cannot be made.
pub fn create_folder(folder: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(FOLDER).create(folder);
    made.map_err(Error::file("create folder", folder))
}

/// Makes a folder in which the driver removes what it does not know. A symlink in its place would lead it to somebody else's
/// files.
///
/// # Errors
/// When it cannot be made, or a symlink or a file has its name.
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

/// Makes a folder of a pool, or gives the one that is there its mode, and the files in it theirs.
///
/// # Errors
/// When it cannot be made, a symlink or a file has its name, or something else is mounted there: images move between the
/// folders of a pool by a change of their names.
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

/// Gives the driver's files in the folder that `--pool` names their modes, and the folder its own if nothing else is in it:
/// a folder that others use, too, stays open to them.
pub(crate) fn mend_root(root: &Path) -> Result<(), Error> {
    let (own, foreign): (Vec<_>, Vec<_>) = entries(root)?.into_iter().partition(is_own);
    for entry in &own {
        mend_file(entry)?;
    }
    if foreign.is_empty() { set(root, FOLDER) } else { Ok(()) }
}

/// Whether a pool's folder holds anything that is not the driver's.
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

/// A file with a second name may be the file of somebody else. One that cannot be looked at, since the disk is damaged, has no
/// mode that lets anybody in, and keeps no other file from being used.
fn mend_file(entry: &fs::DirEntry) -> Result<(), Error> {
    let path = entry.path();
    match entry.metadata() {
        Ok(file) if file.is_file() && file.nlink() == 1 => set(&path, FILE),
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "failed to look at a file of the pool");
            Ok(())
        }
    }
}

fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, Error> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<_>>);
    entries.map_err(Error::file("list", folder))
}

/// Sets a mode where it differs, so that a pool that needs no mending is not written to.
fn set(path: &Path, mode: u32) -> Result<(), Error> {
    let is = fs::metadata(path).map_err(Error::file("look at", path))?.permissions().mode();
    if is & 0o7777 == mode {
        return Ok(());
    }
    let changed = fs::set_permissions(path, Permissions::from_mode(mode));
    changed.map_err(Error::file("set the mode of", path))
}
