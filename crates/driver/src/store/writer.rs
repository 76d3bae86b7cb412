//! The writer thread, which owns the state file.

use std::{
    ffi::OsString,
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableError};
use wharf_mount::heap;

use super::{
    Store, StoreError,
    ballast::{Ballast, is_full},
    draft::Draft,
    folder::Folder,
    state::{Record, State},
};
use crate::{
    error::is_of_disk,
    record::{Group, Node, Snapshot, Volume},
};

/// Cache size of redb; small, since all records are in memory.
const CACHE: usize = 128 << 10;
/// Idle time after which the writer returns memory to the kernel.
const IDLE_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of updates in a commit.
const BATCH: usize = 256;

/// An update. Run on the draft, it returns a function that reports the result of the commit to the
/// caller.
pub(super) type Job = Box<dyn FnOnce(&mut Draft<'_>) -> Answer + Send>;
type Answer = Box<dyn FnOnce(Result<(), StoreError>)>;

pub(super) struct Writer {
    /// Path for messages; files are opened relative to the folder.
    path: PathBuf,
    name: OsString,
    folder: Folder,
    /// `None` while the file cannot be opened again after a failed write.
    database: Option<Database>,
    ballast: Ballast,
    /// The latest state, on which updates run. Its rows are shared with the readers' state.
    state: State,
    failures: Arc<AtomicU64>,
}

impl Writer {
    pub(super) fn open(path: &Path, ballast: &Path) -> Result<Self, StoreError> {
        let (folder, name) = Folder::of(path)?;
        let mut ballast = ballast_in(&folder, ballast);
        if Store::is_lost(path) {
            create_in(&folder, &name, &mut ballast, |_| {}).map_err(not_made(path))?;
        }
        let unreadable = |error: redb::Error| match error {
            redb::Error::DatabaseAlreadyOpen => StoreError::Busy { path: path.to_owned() },
            error if is_full(&error) => full(path, &error),
            redb::Error::Io(error) if is_of_disk(&error) => {
                StoreError::Disk { path: path.to_owned(), reason: error.to_string() }
            }
            error => StoreError::Unreadable { path: path.to_owned(), reason: error.to_string() },
        };
        let open = || {
            caught(|| {
                let mut database = database(folder.open(&name))?;
                if !database.check_integrity()? {
                    tracing::warn!(file = %path.display(), "state file was damaged, undid its last change");
                }
                let state = load(&database)?;
                Ok((database, state))
            })
        };
        let (database, state) = ballast.make_room(&folder, open).map_err(unreadable)?;
        ballast.renew(&folder);
        let (path, failures) = (path.to_owned(), Arc::default());
        Ok(Self { path, name, folder, database: Some(database), ballast, state, failures })
    }

    pub(super) fn failures(&self) -> Arc<AtomicU64> {
        self.failures.clone()
    }

    pub(super) fn state(&self) -> State {
        self.state.clone()
    }

    /// Runs updates until all senders are gone. `shared` is the readers' state, which is committed.
    pub(super) fn run(mut self, jobs: &Receiver<Job>, shared: &RwLock<State>) {
        while let Ok(mut first) = jobs.recv() {
            loop {
                let batch = std::iter::once(first).chain(jobs.try_iter().take(BATCH - 1));
                self.serve(batch, shared);
                match jobs.recv_timeout(IDLE_PAUSE) {
                    Ok(next) => first = next,
                    Err(RecvTimeoutError::Timeout) => break heap::trim_all(),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        }
    }

    fn serve(&mut self, batch: impl Iterator<Item = Job>, shared: &RwLock<State>) {
        let mut state = std::mem::take(&mut self.state);
        let mut draft = Draft::new(&mut state);
        let answers: Vec<Answer> = batch.map(|job| job(&mut draft)).collect();
        let outcome = if draft.is_clean() { Ok(()) } else { self.commit(&draft) };
        match outcome {
            Ok(()) => draft.publish(&mut shared.write().unwrap_or_else(PoisonError::into_inner)),
            Err(_) => draft.take_back_all(),
        }
        drop(draft);
        self.state = state;
        for answer in answers {
            answer(outcome.clone());
        }
    }

    /// Commits; if that fails, once more with a new handle and without ballast.
    fn commit(&mut self, draft: &Draft<'_>) -> Result<(), StoreError> {
        let first = match self.try_commit(draft) {
            Ok(()) => {
                self.ballast.restore(&self.folder);
                return Ok(());
            }
            Err(error) => error,
        };
        self.failures.fetch_add(1, Ordering::Relaxed);
        // After a failed write redb refuses all writes until the file is opened again.
        self.database = None;
        let released = self.ballast.release(&self.folder);
        tracing::warn!(error = %first, ballast_released = released, "failed to commit, retrying");
        self.try_commit(draft).map_err(|error| {
            tracing::error!(%error, "failed to commit, undid changes");
            self.database = None;
            StoreError::Commit { path: self.path.clone(), reason: error.to_string() }
        })
    }

    fn try_commit(&mut self, draft: &Draft<'_>) -> Result<(), redb::Error> {
        let Self { database: held, folder, name, .. } = self;
        caught(|| {
            let database = match held {
                Some(database) => database,
                // Do not create a missing state file: it would have no records.
                none => none.insert(database(folder.open(name))?),
            };
            commit(database, draft)
        })
    }
}

/// Creates a state file with these records, and renames it once it is on disk.
pub(super) fn create(
    path: &Path,
    ballast: &Path,
    fill: impl FnOnce(&mut Draft<'_>),
) -> Result<(), StoreError> {
    let (folder, name) = Folder::of(path)?;
    let mut ballast = ballast_in(&folder, ballast);
    create_in(&folder, &name, &mut ballast, fill).map_err(not_made(path))
}

fn ballast_in(folder: &Folder, ballast: &Path) -> Ballast {
    Ballast::find(folder, ballast.file_name().unwrap_or_default().to_owned())
}

fn full(path: &Path, error: &redb::Error) -> StoreError {
    StoreError::Full { path: path.to_owned(), reason: error.to_string() }
}

/// The error of a state file that could not be created.
fn not_made(path: &Path) -> impl FnOnce(redb::Error) -> StoreError {
    move |error| match is_full(&error) {
        true => full(path, &error),
        false => StoreError::Commit { path: path.to_owned(), reason: error.to_string() },
    }
}

fn create_in(
    folder: &Folder,
    name: &OsString,
    ballast: &mut Ballast,
    fill: impl FnOnce(&mut Draft<'_>),
) -> Result<(), redb::Error> {
    let mut fresh = name.clone();
    fresh.push(".new");
    let mut state = State::default();
    let mut draft = Draft::new(&mut state);
    fill(&mut draft);
    let make = || {
        let made = caught(|| {
            commit(&database(folder.create(&fresh))?, &draft)?;
            Ok(folder.rename(&fresh, name).and_then(|()| folder.sync())?)
        });
        // An incomplete file takes space that others need.
        made.inspect_err(|_| drop(folder.remove(&fresh)))
    };
    ballast.make_room(folder, make)
}

fn commit(database: &Database, draft: &Draft<'_>) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    draft.persist(&transaction)?;
    Ok(transaction.commit()?)
}

/// Converts a panic of redb, which panics on some kinds of damage: one damaged pool must not end
/// the driver.
fn caught<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(redb::Error::Corrupted("the file is damaged: redb panicked, see the log".to_owned()))
    })
}

fn database(file: io::Result<File>) -> Result<Database, DatabaseError> {
    let file = file.map_err(|error| DatabaseError::Storage(StorageError::Io(error)))?;
    Database::builder().set_cache_size(CACHE).create_file(file)
}

fn load(database: &Database) -> Result<State, redb::Error> {
    let mut state = State::default();
    load_table::<Volume>(database, &mut state)?;
    load_table::<Snapshot>(database, &mut state)?;
    load_table::<Group>(database, &mut state)?;
    load_table::<Node>(database, &mut state)?;
    Ok(state)
}

fn load_table<R: Record>(database: &Database, state: &mut State) -> Result<(), redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(R::FILE) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        table => table?,
    };
    for entry in table.iter()? {
        let (id, bytes) = entry?;
        let row: R = serde_json::from_slice(bytes.value()).map_err(|error| {
            StorageError::Corrupted(format!("record {:?} cannot be read: {error}", id.value()))
        })?;
        if row.id() != id.value() {
            let reason = format!("the record of {:?} is that of {:?}", id.value(), row.id());
            return Err(StorageError::Corrupted(reason).into());
        }
        state.set(id.value(), Some(Arc::new(row)));
    }
    Ok(())
}
