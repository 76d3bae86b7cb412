//! The driver's durable state: redb on the pool, mirrored in memory.
//!
//! One writer thread owns the file. Updates are closures that it runs one after another on the
//! memory and commits together: 32 concurrent creates cost a few fsyncs, not 32. A failed update is
//! undone; a failed commit undoes all updates in it. Readers see only committed state.

mod ballast;
mod draft;
mod folder;
mod state;
mod totals;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread::JoinHandle,
    time::Duration,
};

pub use draft::Draft;
pub use state::{Record, State, Table};
pub use totals::Owed;
use writer::{Job, Writer};

/// Maximum number of updates that wait for the writer, above the number of blocking threads.
const QUEUE: usize = 1024;
/// Timeout of a commit, after which the disk counts as broken.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(60);

/// An error of the store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the file.
    #[error(
        "{path}: the pool is in use by another process: one driver owns a pool; ask it through its admin socket, or stop it"
    )]
    Busy {
        /// The state file.
        path: PathBuf,
    },
    /// The file cannot be opened or read.
    #[error("{path}: {reason}; `wharf driver pool rebuild` rebuilds it from the images' marks")]
    Unreadable {
        /// The state file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There is no space to open or create the file.
    #[error(
        "{path}: the disk is full: {reason}; delete files there that are not the driver's, or make the filesystem larger: the pool \
         is served once there is room"
    )]
    Full {
        /// The state file.
        path: PathBuf,
        /// The disk's error.
        reason: String,
    },
    /// The disk fails, or is read-only.
    #[error(
        "{path}: the disk cannot be read or written: {reason}; see the kernel's log, and mend or mount it: the pool is served \
         once it takes writes"
    )]
    Disk {
        /// The state file.
        path: PathBuf,
        /// The disk's error.
        reason: String,
    },
    /// A commit failed and was undone.
    #[error("{path}: the state cannot be written: {reason}")]
    Commit {
        /// The state file.
        path: PathBuf,
        /// The disk's error.
        reason: String,
    },
    /// A commit takes too long; its outcome is unknown.
    #[error("the pool's disk did not take a commit within {} s", COMMIT_TIMEOUT.as_secs())]
    Stuck,
    /// An update panicked and was undone.
    #[error("an update of the state panicked, which is a bug in the driver; see the log")]
    Panicked,
    /// The store is closed.
    #[error("the state is closed: the driver is stopping")]
    Closed,
}

/// The durable state of one pool.
#[derive(Debug)]
pub struct Store {
    state: Arc<RwLock<State>>,
    queue: Option<SyncSender<Job>>,
    writer: Option<JoinHandle<()>>,
    failures: Arc<AtomicU64>,
}

impl Store {
    /// Creates a state file with the records that `fill` puts, replacing an existing one. It is
    /// renamed to its final name once it is complete and on disk, so a crash leaves the old file.
    /// On a full disk the ballast is released.
    ///
    /// # Errors
    /// If another process holds the folder, or the disk fails.
    pub fn create(
        file: &Path,
        ballast: &Path,
        fill: impl FnOnce(&mut Draft<'_>),
    ) -> Result<(), StoreError> {
        writer::create(file, ballast, fill)
    }

    /// Whether the state file is missing or empty, as an interrupted copy or a full disk leaves it.
    pub fn is_lost(file: &Path) -> bool {
        match std::fs::symlink_metadata(file) {
            Ok(there) => there.is_file() && there.len() == 0,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// Opens and reads the state file. A file that [is lost](Self::is_lost) is first created
    /// without records.
    ///
    /// # Errors
    /// If another process holds the file, or it cannot be read.
    pub fn open(file: &Path, ballast: &Path) -> Result<Self, StoreError> {
        let writer = Writer::open(file, ballast)?;
        let failures = writer.failures();
        let state = Arc::new(RwLock::new(writer.state()));
        let (queue, jobs) = mpsc::sync_channel(QUEUE);
        let shared = state.clone();
        let writer = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(&jobs, &shared))
            .map_err(|error| StoreError::Unreadable {
                path: file.to_owned(),
                reason: format!("its thread cannot be started: {error}"),
            })?;
        Ok(Self { state, queue: Some(queue), writer: Some(writer), failures })
    }

    /// Number of commits that the disk refused since the start.
    pub fn commit_failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Reads the state.
    pub fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a copy of the state, for work that waits for a disk: the lock must not be held
    /// meanwhile.
    pub fn snapshot(&self) -> State {
        self.read(State::clone)
    }

    /// Runs `change` on the latest state, and returns when its result is on disk. Blocks.
    ///
    /// # Errors
    /// The error of `change` or of the commit; then nothing is kept.
    pub fn update<T, E>(
        &self,
        change: impl FnOnce(&mut Draft<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (answer, outcome) = mpsc::sync_channel(1);
        let job: Job = Box::new(move |draft| {
            let result = draft.all_or_nothing(change);
            Box::new(move |commit| {
                // The caller may have timed out; the result stands.
                let _ =
                    answer.send(result.and_then(|value| commit.map(|()| value).map_err(E::from)));
            })
        });
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        queue.send(job).map_err(|_| StoreError::Closed)?;
        outcome.recv_timeout(COMMIT_TIMEOUT).unwrap_or_else(|error| {
            Err(E::from(match error {
                RecvTimeoutError::Timeout => StoreError::Stuck,
                RecvTimeoutError::Disconnected => StoreError::Closed,
            }))
        })
    }
}

impl Drop for Store {
    /// Waits for running commits.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests;
