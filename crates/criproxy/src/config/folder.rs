//! Reads the folder, and checks whether it can be trusted.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, FileType, Metadata},
    io::{self, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use super::{FileError, config_map::is_config_map, file_name::escape};

/// The largest file that is read.
const LIMIT: u64 = 64 << 10;
/// How often a dangling link is tried before it counts as dangling.
const TRIES: usize = 3;

/// Why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Other users could put files into it.
    #[error("hook server folder {}: {why}", folder.display())]
    Untrusted {
        /// The folder.
        folder: PathBuf,
        /// The user who could, and the remedy.
        why: String,
    },
    /// It could not be read.
    #[error("hook server folder {}: cannot be read", folder.display())]
    Unreadable {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl FolderError {
    /// The text without the folder's name.
    pub(super) fn reason(&self) -> String {
        match self {
            FolderError::Untrusted { why, .. } => why.clone(),
            FolderError::Unreadable { source, .. } => format!("cannot be read: {source}"),
        }
    }
}

/// A file as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// Its text, as far as it could be read. It may be untrusted.
    pub(super) text: Vec<u8>,
    /// The reason why the text does not count.
    pub(super) fault: Option<FileError>,
}

/// The contents of a folder.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Files of hook servers, by name.
    pub(super) servers: BTreeMap<String, Reading>,
    /// Other files.
    pub(super) others: Vec<String>,
}

/// Reads a folder; `None` if it does not exist. Blocks.
pub(super) fn read(folder: &Path) -> Result<Option<Contents>, FolderError> {
    let unreadable = |source| FolderError::Unreadable { folder: folder.to_owned(), source };
    match fs::metadata(folder) {
        Ok(metadata) => trust_owner(&metadata)
            .and_then(|()| match trust_mode(&metadata) {
                Err(why) if !is_config_map(folder) => Err(why),
                _ => Ok(()),
            })
            .map_err(|why| FolderError::Untrusted { folder: folder.to_owned(), why })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    }
    let mut contents = Contents::default();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        let path = folder.join(&name);
        let Some(reading) = read_file(&path) else { continue };
        let shown = escape(&name);
        if is_of_a_server(&name) {
            contents.servers.insert(shown, reading);
        } else if !matches!(reading.fault, Some(FileError::NoFile(_))) {
            contents.others.push(shown);
        }
    }
    Ok(Some(contents))
}

/// The rule of koord-runtime-proxy: `json` at the end, with or without a dot.
fn is_of_a_server(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b"json")
}

/// Reads a file; `None` if it does not exist (any more).
fn read_file(path: &Path) -> Option<Reading> {
    let mut text = Vec::new();
    match read_text(path, &mut text) {
        Ok(true) => Some(Reading { text, fault: None }),
        Ok(false) => None,
        Err(fault) => Some(Reading { text, fault: Some(fault) }),
    }
}

/// Reads a file into `text`, also if it is not trusted. Returns false if it does not exist.
fn read_text(path: &Path, text: &mut Vec<u8>) -> Result<bool, FileError> {
    let unreadable = |error: io::Error| FileError::Unreadable(error.to_string());
    // NONBLOCK, so that opening never waits for the other end of a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut tries = 1..=TRIES;
    let file = loop {
        let last = tries.next().is_none_or(|number| number == TRIES);
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => break File::from(file),
            Err(Errno::NOENT) => match fs::symlink_metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(unreadable(error)),
                Ok(_) if last => {
                    return Err(FileError::NoFile("a link to a file that is not there"));
                }
                // The target may be in the middle of a replacement.
                Ok(_) => {}
            },
            // A socket cannot be opened.
            Err(Errno::NXIO) => return Err(FileError::NoFile("a socket")),
            Err(error) => return Err(unreadable(error.into())),
        }
    };
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(FileError::NoFile(kind(metadata.file_type())));
    }
    file.take(LIMIT + 1).read_to_end(text).map_err(unreadable)?;
    if text.len() as u64 > LIMIT {
        text.clear();
        return Err(FileError::TooBig { limit: LIMIT });
    }
    trust(&metadata).and_then(|()| trust_target(path)).map_err(FileError::Untrusted)?;
    Ok(true)
}

/// The kind of an entry that is not a file, for people.
fn kind(found: FileType) -> &'static str {
    if found.is_dir() {
        "a folder"
    } else if found.is_fifo() {
        "a named pipe"
    } else {
        "a device"
    }
}

/// Checks that only root and our user can put files into a folder, or replace the folder. Blocks.
///
/// # Errors
/// The user who could, and the remedy.
pub(super) fn trust_folder(folder: &Path) -> Result<(), String> {
    let metadata = fs::metadata(folder).map_err(|error| format!("cannot be read: {error}"))?;
    trust(&metadata)?;
    trust_folder_of(folder)
}

/// Checks that only root and our user can change a file that decides about every pod: the file that
/// a link leads to, and the folder of that file, in which it could be replaced. Blocks.
///
/// # Errors
/// The user who could, and the remedy.
pub fn trust_file(path: &Path) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    trust(&metadata)?;
    trust_folder_of(path)
}

/// Checks that the socket of a hook server can be trusted: the process that listens runs as a
/// trusted user, and no other user can replace the socket. Blocks while the folder of the socket is
/// read.
///
/// # Errors
/// The user who is not trusted, and the remedy.
pub(crate) fn trust_socket(
    socket: &Path,
    peer_uid: u32,
    allowed_uid: Option<u32>,
) -> Result<(), String> {
    if !is_trusted(peer_uid, allowed_uid) {
        return Err(format!(
            "its process runs as uid {peer_uid}, who would see and change what runs in every pod: \
             run it as root, or allow this user with \"uid\": {peer_uid} in the server's file"
        ));
    }
    let unreadable = |error: io::Error| format!("its folder cannot be read: {error}");
    let target = fs::canonicalize(socket).map_err(unreadable)?;
    let Some(folder) = target.parent() else { return Ok(()) };
    let metadata = fs::metadata(folder).map_err(unreadable)?;
    let trusted = match trust_owner_or(&metadata, allowed_uid).and(trust_mode(&metadata)) {
        Err(_) if is_sticky(&metadata) => {
            let socket = fs::metadata(&target).map_err(unreadable)?;
            trust_owner_or(&socket, allowed_uid)
        }
        trusted => trusted,
    };
    trusted.map_err(|why| format!("its folder {}: {why}", folder.display()))
}

/// The folder that a link leads into is checked like the folder of the link.
fn trust_target(path: &Path) -> Result<(), String> {
    if fs::symlink_metadata(path).is_ok_and(|own| own.is_symlink()) {
        trust_folder_of(path)?;
    }
    Ok(())
}

fn trust_folder_of(path: &Path) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("its folder cannot be read: {error}");
    let target = fs::canonicalize(path).map_err(unreadable)?;
    let Some(folder) = target.parent() else { return Ok(()) };
    let metadata = fs::metadata(folder).map_err(unreadable)?;
    match trust(&metadata) {
        Err(why) if !is_sticky(&metadata) => Err(format!("its folder {}: {why}", folder.display())),
        _ => Ok(()),
    }
}

/// Whether only owners may replace their files, as in /tmp: then only the file is checked.
fn is_sticky(folder: &Metadata) -> bool {
    folder.mode() & 0o1000 != 0 && folder.uid() == 0
}

/// Checks that only root and our user can write to it.
fn trust(metadata: &Metadata) -> Result<(), String> {
    trust_owner(metadata)?;
    trust_mode(metadata)
}

/// Whether a user is root, our own, or the additionally allowed one.
fn is_trusted(uid: u32, allowed: Option<u32>) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw() || Some(uid) == allowed
}

fn trust_owner(metadata: &Metadata) -> Result<(), String> {
    trust_owner_or(metadata, None)
}

fn trust_owner_or(metadata: &Metadata, allowed: Option<u32>) -> Result<(), String> {
    let owner = metadata.uid();
    if is_trusted(owner, allowed) {
        return Ok(());
    }
    Err(format!(
        "owned by uid {owner}, who could have hooks run on every pod: expected root as the owner"
    ))
}

fn trust_mode(metadata: &Metadata) -> Result<(), String> {
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 == 0 {
        return Ok(());
    }
    Err(format!(
        "its mode {mode:04o} lets others write to it, who could have hooks run on every pod: take \
         that away with chmod go-w"
    ))
}
