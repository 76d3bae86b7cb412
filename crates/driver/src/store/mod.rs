//! The driver's durable state: redb on the pool, mirrored in memory.
//!
//! One writer thread owns the file. Updates are closures that it runs one after another against the memory and commits
//! together: 32 creates at once cost a few fsyncs, not 32. An update that fails leaves no trace; a commit that fails takes
//! back every update in it. Readers see what is on disk, never what is about to be.

mod ballast;
mod draft;
mod folder;
mod state;
mod totals;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

pub use draft::Draft;
pub use state::{Record, State, Table};
pub use totals::Owed;
use writer::{Job, Writer};

/// Updates that may wait for the writer; more callers than the blocking pool has threads cannot come.
const QUEUE: usize = 1024;
/// A disk that does not take a commit for so long is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// The state could not be read or made durable.
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
    #[error("{path}: {reason}; `wharf driver pool rebuild` makes it anew from the images' marks")]
    Unreadable {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file cannot be opened or made for want of space.
    #[error(
        "{path}: the disk is full: {reason}; delete files there that are not the driver's, or make the filesystem larger: the pool \
         is served once there is room"
    )]
    Full {
        /// The state file.
        path: PathBuf,
        /// The disk's word.
        reason: String,
    },
    /// The disk fails, or takes no writes.
    #[error(
        "{path}: the disk does not read or take writes: {reason}; see the kernel's log, and mend or mount it: the pool is served \
         once it takes writes"
    )]
    Disk {
        /// The state file.
        path: PathBuf,
        /// The disk's word.
        reason: String,
    },
    /// A commit failed and was taken back.
    #[error("{path}: the state cannot be written: {reason}")]
    Commit {
        /// The state file.
        path: PathBuf,
        /// The disk's word.
        reason: String,
    },
    /// A commit takes too long; whether it will be kept is open.
    #[error("the pool's disk did not take a commit within {} s", PATIENCE.as_secs())]
    Stuck,
    /// An update panicked and was taken back.
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
    /// Makes a state file with these records, in place of one that is there. It has its name once it is whole and on disk: a
    /// crash leaves what was there before. On a full disk the ballast makes room for it.
    ///
    /// # Errors
    /// When the folder is held by another process, or the disk fails.
    pub fn create(
        file: &Path,
        ballast: &Path,
        fill: impl FnOnce(&mut Draft<'_>),
    ) -> Result<(), StoreError> {
        writer::create(file, ballast, fill)
    }

    /// Whether there is no state file, or an empty one, as an interrupted copy or a full disk leaves it.
    pub fn is_lost(file: &Path) -> bool {
        match std::fs::symlink_metadata(file) {
            Ok(there) => there.is_file() && there.len() == 0,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// Opens the state file and reads it whole; one that [is lost](Self::is_lost) is made first, without records.
    ///
    /// # Errors
    /// When the file is held by another process or cannot be read.
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

    /// How many commits the disk refused since the start.
    pub fn commit_failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Looks at the state.
    pub fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state as it is now, for work that waits for a disk: nobody may hold the lock meanwhile.
    pub fn snapshot(&self) -> State {
        self.read(State::clone)
    }

    /// Runs `change` against the newest state and returns when its outcome is on disk. Blocks.
    ///
    /// # Errors
    /// What `change` returns, or the failure of the commit; then nothing of it is kept.
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
                // A caller that lost patience has gone; the outcome stands all the same.
                let _ =
                    answer.send(result.and_then(|value| commit.map(|()| value).map_err(E::from)));
            })
        });
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        queue.send(job).map_err(|_| StoreError::Closed)?;
        outcome.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            Err(E::from(match error {
                RecvTimeoutError::Timeout => StoreError::Stuck,
                RecvTimeoutError::Disconnected => StoreError::Closed,
            }))
        })
    }
}

impl Drop for Store {
    /// Waits for the commits under way.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests;
