//! A server's file in the proxy's folder.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::config::Config;

/// Readable for others; the proxy rejects a file that others can write.
const MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// The file of one server. Removed on drop, unless it is to stay or another server has replaced it.
#[derive(Debug)]
pub(crate) struct Registration {
    folder: PathBuf,
    name: String,
    /// The file written last. Kept open, so that its inode number cannot be reused by another file.
    file: Option<File>,
    stays: bool,
}

impl Registration {
    /// Writes no file yet.
    pub(crate) fn new(folder: &Path, name: &str, stays: bool) -> Self {
        Self { folder: folder.to_owned(), name: name.to_owned(), file: None, stays }
    }

    /// Whether a file of this name refers to the socket `endpoint`: then this server replaces
    /// another.
    pub(crate) fn names(&self, endpoint: &str) -> bool {
        let known = std::fs::read(self.path()).ok();
        let known: Option<serde_json::Value> =
            known.and_then(|text| serde_json::from_slice(&text).ok());
        known.is_some_and(|known| known["remote-endpoint"] == endpoint)
    }

    /// Whether another server has replaced our file.
    fn is_replaced(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (file.metadata(), self.path().symlink_metadata()) {
            (Ok(own), Ok(found)) => identity(own) != identity(found),
            _ => false,
        }
    }

    /// Writes the file, or replaces it. A server without hook points has no file.
    pub(crate) async fn put(&mut self, config: &Config) -> Result<(), RegistrationError> {
        if config.runtime_hooks.is_empty() {
            self.remove();
            return Ok(());
        }
        if self.is_replaced() {
            tracing::info!(file = %self.path().display(), "replaced by another server, leaving its file");
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

    /// Removes the file, for good or until the next [`put`](Self::put).
    pub(crate) fn remove(&mut self) {
        let Some(file) = self.file.take() else { return };
        let path = self.path();
        let is_ours = || {
            let (own, found) = (file.metadata()?, path.symlink_metadata()?);
            io::Result::Ok((own.dev(), own.ino()) == (found.dev(), found.ino()))
        };
        // Fails if the file is already gone.
        if is_ours().unwrap_or(false)
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "failed to remove the server's file");
        }
    }

    /// Whether the file stays when the server stops.
    pub(crate) fn stays(&self) -> bool {
        self.stays
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.name))
    }

    /// A name that proxies ignore: hidden, and without `json` at the end.
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

/// The server's file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}, the file that registers this server with the proxy", path.display())]
pub struct RegistrationError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// Makes a folder that every user can read, whatever the umask; an existing one is not changed.
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

/// Makes the complete file appear in one step: a proxy must not read a part of it.
fn write(folder: &Path, draft: &Path, target: &Path, text: &str) -> io::Result<File> {
    make_folder(folder)?;
    match std::fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(draft)?;
    file.write_all(text.as_bytes())?;
    // Whatever the umask is.
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.sync_all()?;
    std::fs::rename(draft, target)?;
    Ok(file)
}
