//! The files below a folder.

use std::{
    collections::BTreeMap,
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
};

use tokio_util::sync::CancellationToken;

use crate::{
    Depth, FileId, Options,
    look::{Look, is_absence, look_at_file},
    options::is_hidden,
};

/// The files that a watch with these options would report now. Blocks; makes no root.
///
/// # Errors
///
/// When a part of the tree cannot be read, with the path in the message.
pub fn scan(options: &Options) -> io::Result<BTreeMap<PathBuf, FileId>> {
    let mut found = Found::default();
    walk(&options.root, options, &CancellationToken::new(), &mut found)
        .map_err(|error| named(&options.root, &error))?;
    match found.unknown {
        Some(error) => Err(error),
        None => Ok(found.files),
    }
}

/// Receives the entries that a walk meets.
pub(crate) trait Visitor {
    /// A folder, before it is read.
    fn folder(&mut self, path: &Path);
    /// A file of the watched kind.
    fn file(&mut self, path: &Path, id: FileId);
    /// A file or folder that exists, or did a moment ago, and could not be looked at.
    fn unknown(&mut self, path: &Path, error: &io::Error);
}

/// Walks everything below `top` that the options ask for, one open folder at a time. Returns an
/// error if `top` itself cannot be read; after a stop it is `Interrupted`.
pub(crate) fn walk(
    top: &Path,
    options: &Options,
    stop: &CancellationToken,
    visitor: &mut impl Visitor,
) -> io::Result<()> {
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        visitor.folder(&folder);
        match read(&folder, options, stop, visitor, &mut folders) {
            Ok(()) => {}
            Err(error) if folder == top || error.kind() == io::ErrorKind::Interrupted => {
                return Err(error);
            }
            Err(error) if is_absence(&error) => {}
            Err(error) => visitor.unknown(&folder, &error),
        }
    }
    Ok(())
}

/// Reads one folder, and adds the folders in it to `folders`.
fn read(
    folder: &Path,
    options: &Options,
    stop: &CancellationToken,
    visitor: &mut impl Visitor,
    folders: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let mut path = folder.to_path_buf();
    for entry in fs::read_dir(folder)? {
        if stop.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let entry = entry?;
        let name = entry.file_name();
        if is_hidden(&name) {
            continue;
        }
        path.push(name);
        match look_at_entry(&entry, &path, options) {
            Look::File(id) => visitor.file(&path, id),
            Look::Folder if options.depth == Depth::Tree => folders.push(path.clone()),
            Look::Folder | Look::Nothing => {}
            Look::Unknown(error) => visitor.unknown(&path, &error),
        }
        path.pop();
    }
    Ok(())
}

fn look_at_entry(entry: &DirEntry, path: &Path, options: &Options) -> Look {
    match entry.file_type() {
        Ok(listed) if listed.is_dir() => Look::Folder,
        Ok(listed) => look_at_file(path, listed, options.kind),
        Err(error) if is_absence(&error) => Look::Nothing,
        Err(error) => Look::Unknown(error),
    }
}

#[derive(Default)]
struct Found {
    files: BTreeMap<PathBuf, FileId>,
    unknown: Option<io::Error>,
}

impl Visitor for Found {
    fn folder(&mut self, _: &Path) {}

    fn file(&mut self, path: &Path, id: FileId) {
        self.files.insert(path.to_path_buf(), id);
    }

    fn unknown(&mut self, path: &Path, error: &io::Error) {
        self.unknown.get_or_insert_with(|| named(path, error));
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot look at {}: {error}", path.display()))
}
