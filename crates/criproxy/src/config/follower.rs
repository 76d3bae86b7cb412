//! The task that follows the folder.

use std::{path::PathBuf, pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until},
};
use wharf_dirwatch::{Change, DirWatch};

use super::{
    ConfigStatus, Effect, FileWarning, ServerStatus, Servers,
    catalog::{Catalog, News},
    folder::Contents,
    keeper::{Keeper, Versions},
    watch::{RESCAN, Request, read},
};
use crate::hook_metrics::HookMetrics;

/// Changes within this time are read together.
const DEBOUNCE: Duration = Duration::from_millis(25);
/// How often the folder is read while the folder, one of its files or the state folder is at fault.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps the catalog, the servers in force and the status up to date.
pub(super) struct Follower {
    pub(super) folder: PathBuf,
    pub(super) catalog: Catalog,
    pub(super) keeper: Option<Keeper>,
    /// Whether this process writes the state folder.
    pub(super) keeps_state: bool,
    pub(super) servers: watch::Sender<Arc<Servers>>,
    pub(super) status: watch::Sender<Arc<ConfigStatus>>,
    pub(super) versions: watch::Sender<Versions>,
    pub(super) metrics: HookMetrics,
    /// The last logged fault of the folder.
    pub(super) fault: Option<String>,
    /// The last logged fault of the state folder.
    pub(super) state_fault: Option<String>,
}

impl Follower {
    pub(super) async fn follow(
        mut self,
        mut changes: DirWatch,
        mut requests: mpsc::Receiver<Request>,
    ) {
        let mut rescan = interval_at(Instant::now() + RESCAN, RESCAN);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let deadline = self.next_look();
            tokio::select! {
                change = changes.next() => {
                    let Some(change) = change else { return };
                    self.hear(change);
                    if !self.settle(&mut changes).await {
                        return;
                    }
                }
                Some(request) = requests.recv() => {
                    self.serve(request).await;
                    continue;
                }
                () = expired(deadline) => {}
                _ = rescan.tick() => {}
            }
            match read(&self.folder).await {
                Ok(contents) => self.take(contents).await,
                Err(error) => {
                    self.catalog.lose_folder();
                    self.is_at_fault(Some(error.reason()));
                    self.publish().await;
                }
            }
        }
    }

    /// When the folder has to be read even without an event.
    fn next_look(&self) -> Option<Instant> {
        // The watch does not report what mends a fault: a mode, the target of a link, free file
        // descriptors or disk space.
        let has_fault = self.fault.is_some() || self.state_fault.is_some();
        let look = (has_fault || self.catalog.is_at_fault()).then(|| Instant::now() + LOOK);
        self.catalog.next_deadline().into_iter().chain(look).min()
    }

    async fn serve(&mut self, request: Request) {
        // The send fails if the caller has left.
        match request {
            Request::Forget { server, answer } => {
                let _ = answer.send(self.forget(&server).await);
            }
            Request::Adopt { file, text, answer } => {
                let adopted = self.catalog.adopt(file, text, Instant::now());
                self.publish().await;
                let _ = answer.send(adopted.map_err(|error| error.to_string()));
            }
            Request::KeepState { keep, done } => {
                let _ = done.send(self.keep_state(keep).await);
            }
        }
    }

    /// Writes the state folder from now on, or leaves it, unless it is being written and hangs.
    async fn keep_state(&mut self, keep: bool) -> bool {
        if let Some(keeper) = self.keeper.as_mut().filter(|_| !keep)
            && keeper.is_writing().await
        {
            return false;
        }
        self.keeps_state = keep;
        self.keep_last_good().await;
        true
    }

    async fn forget(&mut self, server: &str) -> Result<String, String> {
        let forgotten = self.catalog.forget(server);
        if forgotten.is_ok() {
            tracing::warn!(server, "required hook server forgotten, pods run without it");
            self.publish().await;
        }
        forgotten
    }

    /// Collects changes that arrive together. Returns false once the watch has ended.
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

    /// Files are read after any change; faults of the watch itself are logged.
    fn hear(&self, change: Change) {
        let folder = self.folder.display();
        match change {
            Change::Trouble { message } => tracing::warn!(
                %folder,
                error = message,
                "failed to watch hook server folder, reading every minute"
            ),
            Change::Synced => tracing::info!(%folder, "watching hook server folder again"),
            Change::Appeared { .. } | Change::Replaced { .. } | Change::Vanished { .. } => {}
        }
    }

    /// Puts the contents of the folder in force. Without a folder nothing changes.
    pub(super) async fn take(&mut self, contents: Option<Contents>) {
        self.is_at_fault(contents.is_none().then(|| "it is gone".to_owned()));
        let news = match contents {
            Some(contents) => self.catalog.update(contents.servers, Instant::now()),
            None => {
                self.catalog.lose_folder();
                Vec::new()
            }
        };
        self.put_in_force();
        news.into_iter().for_each(tell);
        self.report().await;
    }

    /// Puts the servers of the catalog in force, then keeps their files and reports their state.
    async fn publish(&mut self) {
        self.put_in_force();
        self.report().await;
    }

    /// Keeps the files of the servers in force, and reports their state: what is reported to be in
    /// force is so after a restart, too, or a fault says that it may not be.
    async fn report(&mut self) {
        self.keep_last_good().await;
        for (state, files) in self.catalog.counts() {
            self.metrics.config_files(state, files);
        }
        let servers = self.catalog.status();
        let missing = |row: &&ServerStatus| row.required && row.effect == Effect::Refusing;
        self.metrics.required_missing(servers.iter().filter(missing).count());
        let folder_fault = self.fault.as_ref().map(|fault| {
            format!(
                "hook server folder {}: {fault}; what was in force stays",
                self.folder.display()
            )
        });
        let faults = folder_fault.into_iter().chain(self.state_fault.clone()).collect();
        self.status.send_replace(Arc::new(ConfigStatus { servers, faults, ..Default::default() }));
    }

    /// Puts the servers of the catalog in force. Waits for nothing: a disk that hangs must not keep
    /// calls from a server that may refuse them.
    fn put_in_force(&self) {
        self.versions.send_replace(self.catalog.good_versions());
        let servers = self.catalog.servers();
        if servers == **self.servers.borrow() {
            return;
        }
        for (server, first) in servers.doubles() {
            tracing::warn!(
                server = server.name,
                other = first.name,
                endpoint = %server.endpoint.display(),
                "two hook servers share an endpoint, asking it twice"
            );
        }
        self.servers.send_replace(Arc::new(servers));
        self.metrics.config_reloaded();
    }

    async fn keep_last_good(&mut self) {
        let Some(keeper) = self.keeper.as_mut().filter(|_| self.keeps_state) else { return };
        let kept = keeper.keep(self.catalog.good_versions()).await;
        let fault = kept.err().map(|error| {
            format!("the last good versions of hook server files cannot be kept: {error}")
        });
        if self.state_fault == fault {
            return;
        }
        match &fault {
            Some(error) => tracing::warn!(error, "failed to keep last good versions, retrying"),
            None => tracing::info!("keeping last good versions again"),
        }
        self.state_fault = fault;
    }

    /// Logs the fault of the folder when it changes.
    fn is_at_fault(&mut self, fault: Option<String>) {
        if self.fault == fault {
            return;
        }
        let folder = self.folder.display();
        match &fault {
            Some(error) => tracing::warn!(
                %folder,
                error,
                "failed to read hook server folder, keeping last version"
            ),
            None => tracing::info!(%folder, "reading hook server folder again"),
        }
        self.fault = fault;
    }
}

/// Logs one line for each change of a file.
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
        News::Refused { name, error, effect } => {
            tracing::warn!(file = name, %error, %effect, "hook server file is refused");
        }
        News::Removed { name } => {
            tracing::info!(file = name, "hook server file is gone, and its server with it");
        }
        News::Missing { name } => tracing::error!(
            file = name,
            "required hook server file is gone: calls are refused until it is back or forgotten"
        ),
    }
}

/// Waits until a time; for ever without one.
async fn expired(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
