//! [`Config`]: a folder that is followed, from its start to its end.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{JoinSet, spawn_blocking},
    time::timeout,
};
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};

use super::{
    ConfigStatus, FolderError, Servers,
    catalog::Catalog,
    folder::{self, Contents},
    follower::Follower,
    keeper::{self, Keeper, Versions},
    last_good::LastGood,
};
use crate::hook_metrics::HookMetrics;

/// How often all files are read, in case an event was lost.
pub(super) const RESCAN: Duration = Duration::from_secs(60);
/// The time limit of the first reading of the folder.
const START: Duration = Duration::from_secs(10);
/// The time limit of reading the state folder at the start.
const STATE: Duration = Duration::from_secs(5);
/// The folder's mode, if it has to be created.
const MODE: u32 = 0o755;
/// The most requests that may wait.
const REQUESTS: usize = 8;

/// The folder to follow, and the required servers.
#[derive(Clone, Debug, Default)]
pub struct ConfigOptions {
    /// The folder with a file for each hook server.
    pub folder: PathBuf,
    /// The folder that keeps the last good version of each file over restarts. Without one a file
    /// that is bad at the start has no last good version.
    pub state_dir: Option<PathBuf>,
    /// Servers that must have a file, by the file's name without `.json`: their calls are refused
    /// while the file is missing.
    pub required: BTreeSet<String>,
    /// Whether another process writes the state folder, until [`ConfigHandle::keep_state`] gives
    /// that task to this process.
    pub state_is_kept_elsewhere: bool,
}

/// The hook servers of a folder, updated as it changes. Dropping it leaves the last servers in
/// force.
#[derive(Debug)]
pub struct Config {
    servers: watch::Receiver<Arc<Servers>>,
    handle: ConfigHandle,
    task: JoinSet<()>,
}

/// A handle to the task of a [`Config`]: reads and changes its state.
#[derive(Clone, Debug)]
pub struct ConfigHandle {
    status: watch::Receiver<Arc<ConfigStatus>>,
    versions: watch::Receiver<Versions>,
    requests: mpsc::Sender<Request>,
}

/// A request to the task that follows the folder.
#[derive(Debug)]
pub(super) enum Request {
    /// Stop requiring the file of a server.
    Forget { server: String, answer: oneshot::Sender<Result<String, String>> },
    /// Use the last good version that another process has of a file.
    Adopt { file: String, text: Vec<u8>, answer: oneshot::Sender<Result<(), String>> },
    /// Write the state folder from now on, or leave it to another process.
    KeepState { keep: bool, done: oneshot::Sender<bool> },
}

/// Why the folder cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It could not be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// It could not be created or watched.
    #[error("hook server folder {}: {why}", folder.display())]
    Unwatched {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
    /// The last good versions of files cannot be kept.
    #[error("state folder {}: {why}", folder.display())]
    State {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
}

impl Config {
    /// Starts to follow a folder. Creates it if it does not exist, unless versions of its files
    /// were kept: these stay in force then. The servers of its valid files are in force when this
    /// returns.
    ///
    /// # Errors
    /// When the folder cannot be followed, or the state folder cannot be used.
    pub async fn start(options: ConfigOptions, metrics: HookMetrics) -> Result<Self, ConfigError> {
        let ConfigOptions { folder, state_dir, required, state_is_kept_elsewhere } = options;
        let last_good = match state_dir {
            Some(state_dir) => Some(open_state(state_dir).await?),
            None => None,
        };
        let kept = last_good.as_ref().map(LastGood::texts).unwrap_or_default();
        let mut changes = DirWatch::start(Options {
            root: folder.clone(),
            depth: Depth::Folder,
            kind: Kind::File,
            rescan: RESCAN,
            create_root: kept.is_empty().then_some(MODE),
        });
        let watched = timeout(START, watched(&mut changes)).await;
        let watched = watched.unwrap_or_else(|_| Err("no answer from the filesystem".to_owned()));
        // Servers stay in force even if their folder was moved away.
        let may_be_gone = !kept.is_empty() && !folder.exists();
        if let Some(why) = watched.err().filter(|_| !may_be_gone) {
            return Err(ConfigError::Unwatched { folder, why });
        }
        let contents = read(&folder).await?;

        let (sender, mut servers) = watch::channel(Arc::default());
        let (status_sender, status) = watch::channel(Arc::default());
        let (versions_sender, versions) = watch::channel(Versions::default());
        let (requests, requested) = mpsc::channel(REQUESTS);
        let mut follower = Follower {
            folder,
            catalog: Catalog::new(required, kept),
            keeper: last_good.map(Keeper::new),
            keeps_state: !state_is_kept_elsewhere,
            servers: sender,
            status: status_sender,
            versions: versions_sender,
            metrics,
            fault: None,
            state_fault: None,
        };
        follower.take(contents).await;
        servers.mark_unchanged();
        let mut task = JoinSet::new();
        task.spawn(follower.follow(changes, requested));
        Ok(Self { servers, handle: ConfigHandle { status, versions, requests }, task })
    }

    /// The servers in force, now and as they change.
    pub fn servers(&self) -> watch::Receiver<Arc<Servers>> {
        self.servers.clone()
    }

    /// A handle to the state of the servers.
    pub fn handle(&self) -> ConfigHandle {
        self.handle.clone()
    }

    /// Ends the watch, and waits for its task. A write of the state folder may end before.
    pub async fn stop(mut self) {
        // A write that hangs is left to the end of the process.
        let _ = timeout(keeper::LIMIT * 2, self.handle.keep_state(false)).await;
        self.task.shutdown().await;
    }
}

impl ConfigHandle {
    /// The state of each server.
    pub fn status(&self) -> Arc<ConfigStatus> {
        self.status.borrow().clone()
    }

    /// Stops requiring the file of a server. Returns a sentence for the operator.
    ///
    /// # Errors
    /// When its file exists, or it is not required.
    pub async fn forget(&self, server: String) -> Result<String, String> {
        let ended = "the hook server folder is not followed any more";
        let (answer, answered) = oneshot::channel();
        let request = Request::Forget { server, answer };
        self.requests.send(request).await.map_err(|_| ended.to_owned())?;
        answered.await.unwrap_or_else(|_| Err(ended.to_owned()))
    }
}

impl ConfigHandle {
    /// The last good version of each file.
    pub(crate) fn versions(&self) -> Versions {
        self.versions.borrow().clone()
    }

    /// Uses the last good version that another process has of a file, unless the file is good now.
    ///
    /// # Errors
    /// When this process cannot parse the version.
    pub(crate) async fn adopt(&self, file: String, text: Vec<u8>) -> Result<(), String> {
        let ended = "the hook server folder is not followed any more";
        let (answer, answered) = oneshot::channel();
        let request = Request::Adopt { file, text, answer };
        self.requests.send(request).await.map_err(|_| ended.to_owned())?;
        answered.await.unwrap_or_else(|_| Err(ended.to_owned()))
    }

    /// Writes the state folder from now on, or leaves it to another process: two writers would
    /// corrupt it. A write under way is complete when this returns; false if that write hangs, and
    /// nothing has changed.
    pub async fn keep_state(&self, keep: bool) -> bool {
        let (done, kept) = oneshot::channel();
        // If the task has ended, it writes nothing.
        if self.requests.send(Request::KeepState { keep, done }).await.is_err() {
            return true;
        }
        kept.await.unwrap_or(true)
    }
}

/// Reads the kept versions on a blocking thread, because a disk may be slow.
async fn open_state(folder: PathBuf) -> Result<LastGood, ConfigError> {
    let path = folder.clone();
    let opened = timeout(STATE, spawn_blocking(move || LastGood::open(&path))).await;
    let opened = match opened {
        Ok(opened) => opened.unwrap_or_else(|error| Err(error.to_string())),
        Err(_) => Err(format!(
            "no answer from the filesystem within {STATE:?}, and without the last good versions in it \
             hook servers that are mandatory could be missing: repair it, or name another --state-dir"
        )),
    };
    opened.map_err(|why| ConfigError::State { folder, why })
}

/// Waits until the folder is watched, or the watch has failed.
async fn watched(changes: &mut DirWatch) -> Result<(), String> {
    loop {
        match changes.next().await {
            Some(Change::Synced) => break,
            Some(Change::Trouble { message }) => return Err(message),
            Some(_) => {}
            None => return Err("the watch ended".to_owned()),
        }
    }
    changes.trouble().map_or(Ok(()), Err)
}

/// Reads the folder on a blocking thread, because a disk may be slow.
pub(super) async fn read(folder: &Path) -> Result<Option<Contents>, FolderError> {
    let path = folder.to_owned();
    spawn_blocking(move || folder::read(&path)).await.unwrap_or_else(|error| {
        Err(FolderError::Unreadable { folder: folder.to_owned(), source: error.into() })
    })
}
