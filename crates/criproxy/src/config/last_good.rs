//! Keeps the last good version of each file over restarts.
//!
//! A required server must be asked after a restart, too, even if its file is bad by then.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    file_name::unescape,
    folder::{self, trust_folder},
};

/// The folder of the versions inside the state folder.
const VERSIONS: &str = "servers";
const FOLDER_MODE: u32 = 0o700;
/// The mode of folders above the state folder, which may hold sockets of other programs.
const PARENT_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o600;

/// A folder with a copy of each last good version.
#[derive(Debug)]
pub(super) struct LastGood {
    folder: PathBuf,
    kept: BTreeMap<String, Arc<[u8]>>,
}

impl LastGood {
    /// Reads the versions in a state folder, which is created if it does not exist. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used, or users other than root and our own may write to it.
    pub(super) fn open(state_dir: &Path) -> Result<Self, String> {
        make_folder(state_dir)?;
        trust_folder(state_dir)?;
        let folder = state_dir.join(VERSIONS);
        make_folder(&folder)?;
        let contents = folder::read(&folder).map_err(|error| error.reason())?;
        let mut kept = BTreeMap::new();
        for (name, reading) in contents.unwrap_or_default().servers {
            match reading.fault {
                None => drop(kept.insert(name, reading.text.into())),
                Some(error) => tracing::warn!(
                    file = %folder.join(name).display(),
                    %error,
                    "failed to read the last good version of a hook server file"
                ),
            }
        }
        Ok(Self { folder, kept })
    }

    /// The kept versions.
    pub(super) fn texts(&self) -> BTreeMap<String, Vec<u8>> {
        self.kept.iter().map(|(name, text)| (name.clone(), text.to_vec())).collect()
    }

    /// Keeps these versions and no others. Blocks.
    ///
    /// # Errors
    /// When a file cannot be written or removed. The other versions are kept, and the next call
    /// tries again.
    pub(super) fn keep(&mut self, versions: &BTreeMap<String, Arc<[u8]>>) -> io::Result<()> {
        let mut done = Ok(());
        for (name, text) in versions {
            if self.kept.get(name) != Some(text) {
                match self.write(name, text) {
                    Ok(()) => drop(self.kept.insert(name.clone(), text.clone())),
                    Err(error) => done = Err(self.named(name, &error)),
                }
            }
        }
        let obsolete: Vec<_> =
            self.kept.keys().filter(|name| !versions.contains_key(*name)).cloned().collect();
        for name in obsolete {
            match fs::remove_file(self.folder.join(unescape(&name))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    done = Err(self.named(&name, &error));
                }
                _ => drop(self.kept.remove(&name)),
            }
        }
        done
    }

    /// An error with the path of the file.
    fn named(&self, name: &str, error: &io::Error) -> io::Error {
        let path = self.folder.join(name);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    }

    /// Writes a version atomically.
    fn write(&self, name: &str, text: &[u8]) -> io::Result<()> {
        let draft = self.folder.join(".draft");
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).truncate(true).write(true).mode(FILE_MODE).open(&draft)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&draft, self.folder.join(unescape(name)))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// Creates a folder that only our user can read, and missing folders above it.
fn make_folder(folder: &Path) -> Result<(), String> {
    let make = || {
        if let Some(parent) = folder.parent() {
            DirBuilder::new().recursive(true).mode(PARENT_MODE).create(parent)?;
        }
        match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
            Err(_) if folder.is_dir() => Ok(()),
            made => made,
        }
    };
    make().map_err(|error: io::Error| format!("cannot be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_again_by_the_name_of_its_file() {
        let place = tempfile::tempdir().unwrap();
        let versions = [r"\xff.json", r"a\x5cb.json"].map(|name| (name.to_owned(), vec![b'{']));
        let texts = versions.clone().map(|(name, text)| (name, text.into())).into();
        LastGood::open(place.path()).unwrap().keep(&texts).unwrap();
        let mut again = LastGood::open(place.path()).unwrap();
        assert_eq!(again.texts(), versions.into());
        again.keep(&BTreeMap::new()).unwrap();
        assert_eq!(LastGood::open(place.path()).unwrap().texts(), BTreeMap::new());
    }
}
