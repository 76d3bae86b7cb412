//! The task that keeps the catalog up to date, and [`Config`] that owns it.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};

use super::catalog::{Catalog, News};
use super::folder::{self, Contents};
use super::{FileWarning, FolderError, Servers};
use crate::hook_metrics::HookMetrics;

/// Changes that come together are read together.
const DEBOUNCE: Duration = Duration::from_millis(25);
/// How often everything is read, should a change have gone unheard.
const RESCAN: Duration = Duration::from_secs(60);
/// How long the first look at the folder may take.
const START: Duration = Duration::from_secs(10);
/// The folder's mode, if it has to be made.
const MODE: u32 = 0o755;

/// The hook servers that a folder describes, as it changes. Dropping it leaves the last ones in
/// force.
#[derive(Debug)]
pub struct Config {
    servers: watch::Receiver<Arc<Servers>>,
    task: JoinSet<()>,
}

/// Why no folder could be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It could not be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// It is not there, could not be made, or could not be watched.
    #[error("hook server folder {}: {why}", folder.display())]
    Unwatched {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
}

impl Config {
    /// Starts to follow a folder, which is made if it is not there. The servers of its valid files
    /// are in force at once.
    pub async fn start(
        folder: impl Into<PathBuf>,
        metrics: HookMetrics,
    ) -> Result<Config, ConfigError> {
        let folder = folder.into();
        let mut changes = DirWatch::start(Options {
            root: folder.clone(),
            depth: Depth::Folder,
            kind: Kind::File,
            rescan: RESCAN,
            create_root: Some(MODE),
        });
        let watched = timeout(START, watched(&mut changes)).await;
        let unwatched = |why| ConfigError::Unwatched { folder: folder.clone(), why };
        watched
            .unwrap_or_else(|_| Err("no answer from the filesystem".to_owned()))
            .map_err(unwatched)?;

        let (sender, mut servers) = watch::channel(Arc::default());
        let mut follower =
            Follower { folder, catalog: Catalog::default(), servers: sender, metrics, fault: None };
        follower.take(read(&follower.folder).await?);
        servers.mark_unchanged();
        let mut task = JoinSet::new();
        task.spawn(follower.follow(changes));
        Ok(Config { servers, task })
    }

    /// The servers in force, now and as they change.
    pub fn servers(&self) -> watch::Receiver<Arc<Servers>> {
        self.servers.clone()
    }

    /// Ends the watch, and waits for its task.
    pub async fn stop(mut self) {
        self.task.shutdown().await;
    }
}

/// Waits until the folder is watched, or is known not to be.
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

/// Reads the folder elsewhere, since a disk may be slow.
async fn read(folder: &Path) -> Result<Option<Contents>, FolderError> {
    let path = folder.to_owned();
    spawn_blocking(move || folder::read(&path)).await.unwrap_or_else(|error| {
        Err(FolderError::Unreadable { folder: folder.to_owned(), source: error.into() })
    })
}

struct Follower {
    folder: PathBuf,
    catalog: Catalog,
    servers: watch::Sender<Arc<Servers>>,
    metrics: HookMetrics,
    /// What is wrong with the folder, and was told.
    fault: Option<String>,
}

impl Follower {
    async fn follow(mut self, mut changes: DirWatch) {
        let mut rescan = interval_at(Instant::now() + RESCAN, RESCAN);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                change = changes.next() => {
                    let Some(change) = change else { return };
                    self.hear(change);
                    if !self.settle(&mut changes).await {
                        return;
                    }
                }
                _ = rescan.tick() => {}
            }
            match read(&self.folder).await {
                Ok(contents) => self.take(contents),
                Err(error) => self.is_at_fault(Some(format!(
                    "{}; what it said before stays in force",
                    error.reason()
                ))),
            }
        }
    }

    /// Lets changes come together. False once there are no more.
    async fn settle(&self, changes: &mut DirWatch) -> bool {
        let mut settled = pin!(sleep(DEBOUNCE));
        loop {
            tokio::select! {
                () = &mut settled => return true,
                change = changes.next() => match change {
                    Some(change) => self.hear(change),
                    None => return false,
                },
            }
        }
    }

    /// Files are read whatever is said of them; what is said of the watch itself is for people.
    fn hear(&self, change: Change) {
        let folder = self.folder.display();
        match change {
            Change::Trouble { message } => tracing::warn!(
                %folder,
                message,
                "the hook server folder cannot be watched: changes are seen within a minute"
            ),
            Change::Synced => tracing::info!(%folder, "the hook server folder is watched again"),
            Change::Appeared { .. } | Change::Replaced { .. } | Change::Vanished { .. } => {}
        }
    }

    /// Puts in force what is in the folder. A folder that is gone has no servers.
    fn take(&mut self, contents: Option<Contents>) {
        let gone = contents.is_none().then(|| "it is gone, and its servers with it".to_owned());
        self.is_at_fault(gone);
        let news = self.catalog.update(contents.unwrap_or_default().servers);
        news.into_iter().for_each(tell);
        for (state, files) in self.catalog.counts() {
            self.metrics.config_files(state, files);
        }
        let servers = self.catalog.servers();
        if servers == **self.servers.borrow() {
            return;
        }
        for (server, first) in servers.doubles() {
            tracing::warn!(
                server = server.name,
                other = first.name,
                endpoint = %server.endpoint.display(),
                "two hook servers with one endpoint: it is asked twice"
            );
        }
        self.servers.send_replace(Arc::new(servers));
        self.metrics.config_reloaded();
    }

    /// Tells what is wrong with the folder when that changes.
    fn is_at_fault(&mut self, fault: Option<String>) {
        if self.fault == fault {
            return;
        }
        let folder = self.folder.display();
        match &fault {
            Some(fault) => tracing::warn!(%folder, fault, "the hook server folder is of no use"),
            None => tracing::info!(%folder, "the hook server folder is of use again"),
        }
        self.fault = fault;
    }
}

/// One line for each change of a file.
fn tell(news: News) {
    match news {
        News::Loaded { server, warnings } => {
            tracing::info!(file = server.name, %server, "hook server is in force");
            for warning in warnings {
                match warning {
                    FileWarning::UnknownKey(_) => {
                        tracing::debug!(file = server.name, %warning, "hook server file");
                    }
                    _ => tracing::warn!(file = server.name, %warning, "hook server file"),
                }
            }
        }
        News::Empty { name } => {
            tracing::debug!(file = name, "hook server file is empty: waiting for its content");
        }
        News::Refused { name, error, kept: true } => tracing::warn!(
            file = name,
            %error,
            "hook server file is refused: what it said before stays in force"
        ),
        News::Refused { name, error, kept: false } => tracing::warn!(
            file = name,
            %error,
            "hook server file is refused: its server is not asked"
        ),
        News::Removed { name } => {
            tracing::info!(file = name, "hook server file is gone, and its server with it");
        }
    }
}
