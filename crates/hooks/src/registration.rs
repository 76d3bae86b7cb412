//! A server's file in the proxy's folder, from its first write to its removal.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::config::Config;

/// Others read the file; one that they could write to is refused by the proxy.
const MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// The file of one server. Dropped, it is removed, unless it is to stay or another one has taken its place.
#[derive(Debug)]
pub(crate) struct Registration {
    folder: PathBuf,
    name: String,
    /// What was written last. Open, so that its inode number cannot come back under another file.
    file: Option<File>,
    stays: bool,
}

impl Registration {
    /// Nothing is written yet.
    pub(crate) fn new(folder: &Path, name: &str, stays: bool) -> Registration {
        Registration { folder: folder.to_owned(), name: name.to_owned(), file: None, stays }
    }

    /// Whether there is a file of this name for the socket `endpoint`: that of a server which this one replaces.
    pub(crate) fn names(&self, endpoint: &str) -> bool {
        let known = std::fs::read(self.path()).ok();
        let known: Option<serde_json::Value> =
            known.and_then(|text| serde_json::from_slice(&text).ok());
        known.is_some_and(|known| known["remote-endpoint"] == endpoint)
    }

    /// Whether another server's file has taken the place of ours.
    fn is_replaced(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (file.metadata(), self.path().symlink_metadata()) {
            (Ok(own), Ok(found)) => identity(own) != identity(found),
            _ => false,
        }
    }

    /// Writes the file, or writes it anew. A server that is to be asked nothing has none.
    pub(crate) async fn put(&mut self, config: &Config) -> Result<(), RegistrationError> {
        if config.runtime_hooks.is_empty() {
            self.remove();
            return Ok(());
        }
        if self.is_replaced() {
            tracing::info!(file = %self.path().display(), "another server has taken our place");
            return Ok(());
        }
        let path = self.path();
        let error = |source| RegistrationError { path: path.clone(), source };
        let mut text = serde_json::to_string_pretty(config).map_err(|json| error(json.into()))?;
        text.push('\n');
        let (folder, draft, target) = (self.folder.clone(), self.draft(), path.clone());
        let write = move || write(&folder, &draft, &target, &text);
        let written = tokio::task::spawn_blocking(write).await.map_err(io::Error::from).flatten();
        self.file = Some(written.map_err(error)?);
        Ok(())
    }

    /// Takes the server's file away, for good or until the next one is put.
    pub(crate) fn remove(&mut self) {
        let Some(file) = self.file.take() else { return };
        let path = self.path();
        let is_ours = || {
            let (own, found) = (file.metadata()?, path.symlink_metadata()?);
            io::Result::Ok((own.dev(), own.ino()) == (found.dev(), found.ino()))
        };
        // An error means that it is gone already.
        if is_ours().unwrap_or(false)
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove the server's file");
        }
    }

    /// Whether the file is left when the server stops.
    pub(crate) fn stays(&self) -> bool {
        self.stays
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.name))
    }

    /// A name that proxies do not look at: hidden, and not ending in `json`.
    fn draft(&self) -> PathBuf {
        self.folder.join(format!(".{}.json.new", self.name))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.stays {
            self.remove();
        }
    }
}

/// Why a server's file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}, which tells the proxy of this server", path.display())]
pub struct RegistrationError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Makes a folder that every user can read, whatever the umask; one that is there stays as it is.
fn make_folder(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(parent)?;
    }
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)),
        Err(_) if folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the file appear whole: a proxy that looks at it between two writes would see no JSON.
fn write(folder: &Path, draft: &Path, target: &Path, text: &str) -> io::Result<File> {
    make_folder(folder)?;
    match std::fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(draft)?;
    file.write_all(text.as_bytes())?;
    // Whatever the umask took.
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.sync_all()?;
    std::fs::rename(draft, target)?;
    Ok(file)
}
