//! The driver's folder outside of its pools: notes of its pools and attached images, and the admin
//! socket.
//!
//! `STATE_DIR/DRIVER_NAME/` has `pools/NAME.json` for each pool, `attached/IMAGE.json` for each
//! attached image, a lock that excludes a second driver of this name, and `admin.sock`.

mod attached;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use wharf_mount::sync;

pub(crate) use attached::image_of;
pub use attached::{AttachedImage, AttachedImages};

use crate::{error::Error, files, pool::PoolId, private};

/// Maximum wait for the lock of the driver's folder.
const LOCK_WAIT: Duration = Duration::from_secs(3);

/// The driver's note of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// UUID of the pool.
    pub pool: PoolId,
    /// Folder from which the pool was last served.
    pub folder: PathBuf,
    /// Whether `wharf driver pool drain` drained it.
    #[serde(default)]
    pub drain: bool,
    /// Short UUIDs in IDs of the pool's objects besides its own: it was given another UUID, or is a
    /// copy.
    #[serde(default)]
    pub older: BTreeSet<String>,
}

impl Note {
    /// Whether an object whose ID has this short UUID may be on the pool.
    pub fn may_hold(&self, short: &str) -> bool {
        self.pool.short() == short || self.older.contains(short)
    }
}

/// The notes of a driver, by the names of their pools.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Readable notes.
    pub known: BTreeMap<String, Note>,
    /// Reasons why notes are unreadable, with the file.
    pub damaged: BTreeMap<String, String>,
}

/// The driver's folder, locked by this process.
#[derive(Debug)]
pub struct StateDir {
    folder: PathBuf,
    notes: Mutex<Notes>,
    attached: Arc<AttachedImages>,
    lock: File,
}

impl StateDir {
    /// Opens the folder of the driver named `driver` below `root`, or creates it.
    ///
    /// # Errors
    /// If it cannot be used, or another driver of this name uses it. A damaged note affects only
    /// its own pool: see [`Self::damaged`].
    pub fn open(root: &Path, driver: &str) -> Result<Self, Error> {
        let folder = root.join(driver);
        private::create_folder(root)?;
        private::create_own_folder(&folder)?;
        private::create_own_folder(&notes_folder(&folder))?;
        let lock = folder.join("lock");
        let file = files::open_or_create(&lock);
        let file = file.map_err(Error::file("open", &lock))?;
        lock_with_retry(&file, &folder).map_err(|error| match error {
            Errno::WOULDBLOCK => Error::Precondition(format!(
                "{} is in use by another process: one driver called {driver} runs with a --state-dir; stop it, or give this \
                 one another --driver-name or --state-dir. A driver that was killed while a disk hung keeps it until that \
                 disk answers",
                folder.display()
            )),
            error => Error::file("lock", &lock)(error.into()),
        })?;
        let notes = Mutex::new(read_notes(&folder)?);
        let attached = Arc::new(AttachedImages::open(folder.join("attached"))?);
        Ok(Self { folder, notes, attached, lock: file })
    }

    /// Reads the notes of a driver without locking its folder; empty if there is no such folder.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn peek(root: &Path, driver: &str) -> Result<Notes, Error> {
        read_notes(&root.join(driver))
    }

    /// Path of a driver's admin socket.
    pub fn admin_socket(root: &Path, driver: &str) -> PathBuf {
        root.join(driver).join("admin.sock")
    }

    /// Path of this driver's admin socket.
    pub fn own_admin_socket(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    /// Unlocks the folder for another driver: this process may live on while a disk hangs.
    pub fn release(&self) {
        if let Err(error) = flock(&self.lock, FlockOperation::Unlock) {
            let folder = self.folder.display();
            tracing::warn!(%folder, %error, "failed to unlock driver's folder");
        }
    }

    /// Notes of attached images.
    pub fn attached(&self) -> &Arc<AttachedImages> {
        &self.attached
    }

    /// Returns all readable notes, by the names of their pools.
    pub fn notes(&self) -> BTreeMap<String, Note> {
        self.lock().known.clone()
    }

    /// Returns the note of a pool.
    pub fn note(&self, name: &str) -> Option<Note> {
        self.lock().known.get(name).cloned()
    }

    /// Returns why notes are unreadable, by the names of their pools. The disks of these pools are
    /// unknown.
    pub fn damaged(&self) -> BTreeMap<String, String> {
        self.lock().damaged.clone()
    }

    /// Writes a note, durably. A no-op if it is unchanged.
    ///
    /// # Errors
    /// If it cannot be written; then the old one stays.
    pub fn keep(&self, name: &str, note: Note) -> Result<(), Error> {
        let mut notes = self.lock();
        if notes.known.get(name) == Some(&note) {
            return Ok(());
        }
        let path = note_file(&self.folder, name);
        files::write(&path, &serde_json::to_vec(&note).unwrap_or_default())?;
        sync::folder(&notes_folder(&self.folder))?;
        notes.known.insert(name.to_owned(), note);
        notes.damaged.remove(name);
        Ok(())
    }

    /// Removes the note of a pool, durably.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let mut notes = self.lock();
        let path = note_file(&self.folder, name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::file("remove", path)(error));
            }
            _ => {}
        }
        sync::folder(&notes_folder(&self.folder))?;
        notes.known.remove(name);
        notes.damaged.remove(name);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn notes_folder(folder: &Path) -> PathBuf {
    folder.join("pools")
}

fn note_file(folder: &Path, name: &str) -> PathBuf {
    notes_folder(folder).join(format!("{name}.json"))
}

fn read_notes(folder: &Path) -> Result<Notes, Error> {
    let folder = notes_folder(folder);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Notes::default()),
        entries => entries.map_err(Error::file("list", &folder))?,
    };
    let mut notes = Notes::default();
    for entry in entries {
        let path = entry.map_err(Error::file("list", &folder))?.path();
        // Skip the temporary file of an interrupted write.
        let (Some("json"), Some(name)) = (
            path.extension().and_then(|it| it.to_str()),
            path.file_stem().and_then(|it| it.to_str()),
        ) else {
            continue;
        };
        match read_note(&path) {
            Ok(note) => drop(notes.known.insert(name.to_owned(), note)),
            Err(reason) => {
                let reason = format!("its note {} cannot be read: {reason}", path.display());
                notes.damaged.insert(name.to_owned(), reason);
            }
        }
    }
    Ok(notes)
}

/// Reads a note; the error is the reason for a person.
fn read_note(path: &Path) -> Result<Note, String> {
    let bytes = files::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// Locks the driver's folder for this process.
///
/// A driver that is killed while it forks leaves a child that holds the lock until it calls exec,
/// so a start that follows at once has to wait. The kernel sends no event when a lock becomes free.
fn lock_with_retry(file: &File, folder: &Path) -> Result<(), Errno> {
    let deadline = Instant::now() + LOCK_WAIT;
    let mut is_logged = false;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                if !is_logged {
                    tracing::info!(folder = %folder.display(), "waiting for lock of driver's folder");
                    is_logged = true;
                }
                thread::park_timeout(Duration::from_millis(10));
            }
            locked => return locked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> Note {
        let pool = "11111111-2222-4333-8444-555555555555".parse().expect("a UUID");
        Note { pool, folder: "/pool".into(), drain: false, older: BTreeSet::new() }
    }

    #[test]
    fn notes_outlive_the_driver() {
        let root = tempfile::tempdir().expect("folder");
        let state = StateDir::open(root.path(), "d").expect("opened");
        state.keep("fast", note()).expect("kept");
        let busy = StateDir::open(root.path(), "d").expect_err("locked").to_string();
        assert!(busy.contains("in use by another process"), "{busy}");
        StateDir::open(root.path(), "other").expect("another driver's folder");
        drop(state);
        let state = StateDir::open(root.path(), "d").expect("opened again");
        assert_eq!(state.note("fast"), Some(note()));
        state.remove("fast").expect("removed");
        drop(state);
        assert_eq!(StateDir::peek(root.path(), "d").expect("readable"), Notes::default());
    }

    #[test]
    fn a_damaged_note_is_named_and_the_others_are_read() {
        let root = tempfile::tempdir().expect("folder");
        let state = StateDir::open(root.path(), "d").expect("opened");
        for name in ["fast", "slow", "cut"] {
            state.keep(name, note()).expect("kept");
        }
        drop(state);
        let file = |name| note_file(&root.path().join("d"), name);
        fs::write(file("fast"), "{").expect("written");
        fs::remove_file(file("cut")).expect("removed");
        fs::create_dir(file("cut")).expect("made");
        let state = StateDir::open(root.path(), "d").expect("opened");
        assert_eq!(state.notes().into_keys().collect::<Vec<_>>(), ["slow"]);
        let damaged = state.damaged();
        assert_eq!(damaged.keys().collect::<Vec<_>>(), ["cut", "fast"]);
        assert!(damaged["fast"].contains("fast.json"), "{damaged:?}");
        state.keep("fast", note()).expect("kept");
        assert_eq!(state.note("fast"), Some(note()));
        assert_eq!(state.damaged().into_keys().collect::<Vec<_>>(), ["cut"]);
    }
}
