//! The driver's folder outside of its pools: which pools it has served, and its admin socket.
//!
//! `STATE_DIR/DRIVER_NAME/` holds `pools/NAME.json` for each pool, `attached/IMAGE.json` for each image that is attached, a lock
//! that keeps a second driver of that name away, and `admin.sock`.

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

/// How long a start waits for the lock of the driver's folder.
const LOCK_WAIT: Duration = Duration::from_secs(3);

/// What the driver remembers of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The pool's UUID.
    pub pool: PoolId,
    /// The folder that it was last served from.
    pub folder: PathBuf,
    /// Whether `wharf driver pool drain` closed it to new volumes.
    #[serde(default)]
    pub drain: bool,
    /// Short UUIDs in ids of objects that the pool holds besides its own: it was given another UUID, or is a copy.
    #[serde(default)]
    pub older: BTreeSet<String>,
}

impl Note {
    /// Whether an object may be on the pool whose id names a pool with this short UUID.
    pub fn may_hold(&self, short: &str) -> bool {
        self.pool.short() == short || self.older.contains(short)
    }
}

/// The notes of a driver, by the names of their pools.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Notes that can be read.
    pub known: BTreeMap<String, Note>,
    /// For each note that cannot be read, the file and the reason.
    pub damaged: BTreeMap<String, String>,
}

/// The driver's folder, owned by this process.
#[derive(Debug)]
pub struct StateDir {
    folder: PathBuf,
    notes: Mutex<Notes>,
    attached: Arc<AttachedImages>,
    lock: File,
}

impl StateDir {
    /// Opens the folder of the driver called `driver` below `root`, or makes it.
    ///
    /// # Errors
    /// When it cannot be used, or another driver of that name uses it. A damaged note keeps only its own pool from being
    /// served: see [`Self::damaged`].
    pub fn open(root: &Path, driver: &str) -> Result<Self, Error> {
        let folder = root.join(driver);
        private::create_folder(root)?;
        private::create_own_folder(&folder)?;
        private::create_own_folder(&notes_folder(&folder))?;
        let lock = folder.join("lock");
        let file = files::open_or_create(&lock);
        let file = file.map_err(Error::file("open", &lock))?;
        lock_patiently(&file, &folder).map_err(|error| match error {
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

    /// The notes of a driver, without owning its folder; none if there is no such folder.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn peek(root: &Path, driver: &str) -> Result<Notes, Error> {
        read_notes(&root.join(driver))
    }

    /// The socket that `wharf driver pool` talks to.
    pub fn admin_socket(root: &Path, driver: &str) -> PathBuf {
        root.join(driver).join("admin.sock")
    }

    /// This driver's own admin socket.
    pub fn own_admin_socket(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    /// Lets another driver have the folder, at the end of this one: the process may outlive its end while a disk hangs.
    pub fn release(&self) {
        if let Err(error) = flock(&self.lock, FlockOperation::Unlock) {
            let folder = self.folder.display();
            tracing::warn!(%folder, %error, "failed to unlock the driver's folder");
        }
    }

    /// The notes of images that are attached.
    pub fn attached(&self) -> &Arc<AttachedImages> {
        &self.attached
    }

    /// All notes that can be read, by the names of their pools.
    pub fn notes(&self) -> BTreeMap<String, Note> {
        self.lock().known.clone()
    }

    /// The note of a pool.
    pub fn note(&self, name: &str) -> Option<Note> {
        self.lock().known.get(name).cloned()
    }

    /// Why notes cannot be read, by the names of their pools. Nothing says which disks these pools were on.
    pub fn damaged(&self) -> BTreeMap<String, String> {
        self.lock().damaged.clone()
    }

    /// Keeps a note, durably. One that is kept already costs nothing.
    ///
    /// # Errors
    /// When it cannot be written; then the old one stays.
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
    /// When it cannot be removed.
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
        // A write that was cut short leaves its temporary file.
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

/// Reads a note, or says why it cannot be read.
fn read_note(path: &Path) -> Result<Note, String> {
    let bytes = files::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// Locks the driver's folder for this process.
///
/// A driver that was killed while it forked leaves a child that holds the lock until it calls exec, so a start that
/// follows at once has to wait. The kernel sends no event when a lock becomes free.
fn lock_patiently(file: &File, folder: &Path) -> Result<(), Errno> {
    let deadline = Instant::now() + LOCK_WAIT;
    let mut is_logged = false;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                if !is_logged {
                    tracing::info!(folder = %folder.display(), "waiting for the lock of the driver's folder");
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
