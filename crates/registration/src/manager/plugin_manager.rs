use std::{path::PathBuf, sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use tokio::{
    sync::{Semaphore, broadcast, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};
use wharf_reconcile::{Backoff, Config, Handle, Reconciler};

use super::{
    Dial, Handlers, ManagerMetrics, PluginEvent, PluginView, SocketDial,
    metrics::Totals,
    operation::{MAX_SLOW, Operator, PERMITS},
    plugin_state::PluginState,
};

/// Operations at a time. An operation takes a connection and a few kilobytes; the bound keeps the
/// start with a thousand sockets within an ordinary limit of open files.
pub(super) const PARALLELISM: usize = 512;
/// How long a stop waits for running operations.
const DRAIN: Duration = Duration::from_secs(5);

/// The watched folder, and the timing of a [`PluginManager`].
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The watched folder, `<kubelet root>/plugins_registry`. Made if it is not there.
    pub root: PathBuf,
    /// Time between two scans of the folder, in case an inotify event was missed.
    pub rescan: Duration,
    /// Waits between failed registrations of a socket.
    pub backoff: Backoff,
}

impl ManagerOptions {
    /// The kubelet's values.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), rescan: Duration::from_secs(10), backoff: Backoff::KUBELET }
    }
}

/// The plugin manager of a node.
pub struct PluginManager {
    state: Arc<PluginState>,
    metrics: ManagerMetrics,
    reconciler: Reconciler<PathBuf>,
    watching: JoinSet<()>,
    stop: CancellationToken,
    synced: watch::Receiver<bool>,
}

impl PluginManager {
    /// Starts to watch; plugins of sockets that exist are registered, too.
    pub fn start(options: ManagerOptions, handlers: Handlers) -> Self {
        Self::start_with(options, handlers, Arc::new(SocketDial))
    }

    /// Like [`PluginManager::start`], with another way to connect to plugins.
    pub fn start_with(options: ManagerOptions, handlers: Handlers, dial: Arc<dyn Dial>) -> Self {
        let state = Arc::new(PluginState::new());
        let metrics = ManagerMetrics::default();
        let reconciler = Reconciler::start(
            Config {
                name: "plugins",
                parallelism: PARALLELISM,
                backoff: options.backoff,
                metrics: None,
            },
            Operator {
                state: Arc::clone(&state),
                handlers,
                dial,
                metrics: metrics.clone(),
                permits: Semaphore::new(PERMITS),
                slow: Semaphore::new(MAX_SLOW),
            },
        );
        let stop = CancellationToken::new();
        let (synced_sender, synced) = watch::channel(false);
        let mut watching = JoinSet::new();
        let feed =
            Feed { state: Arc::clone(&state), handle: reconciler.handle(), synced: synced_sender };
        watching.spawn(feed.run(
            DirWatch::start(Options {
                root: options.root,
                depth: Depth::Tree,
                kind: Kind::Socket,
                rescan: options.rescan,
                create_root: Some(0o750),
            }),
            stop.clone(),
        ));
        Self { state, metrics, reconciler, watching, stop, synced }
    }

    /// The plugin table, by socket.
    pub fn plugins(&self) -> Vec<PluginView> {
        self.state.view()
    }

    /// A receiver of future events. One that lags too far behind misses events, and gets their
    /// number.
    pub fn events(&self) -> broadcast::Receiver<PluginEvent> {
        self.state.events()
    }

    /// Whether the folder was scanned completely, and its watch has no fault.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.clone()
    }

    /// Waits until no operation is running or queued; sockets that back off do not count.
    pub async fn idle(&self) {
        self.reconciler.handle().idle().await;
    }

    /// Exports the manager's metrics.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        registry.register_collector(Box::new(Totals(Arc::clone(&self.state))));
    }

    /// Stops watching and waits for running operations. Plugins stay registered with their
    /// handlers: the next manager finds their sockets.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.watching.join_next().await.is_some() {}
        let cut = self.reconciler.drain(DRAIN).await;
        if !cut.is_empty() {
            warn!(sockets = ?cut, "aborted operations that did not end");
        }
    }
}

/// Updates the desired state from the changes of the folder.
pub(super) struct Feed {
    pub(super) state: Arc<PluginState>,
    pub(super) handle: Handle<PathBuf>,
    pub(super) synced: watch::Sender<bool>,
}

impl Feed {
    async fn run(self, mut watch: DirWatch, stop: CancellationToken) {
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => break,
                change = watch.next() => change,
            };
            match change {
                None => break,
                Some(change) => self.observe(change),
            }
        }
        watch.stop().await;
    }

    fn observe(&self, change: Change) {
        match change {
            Change::Appeared { path, .. } | Change::Replaced { path, .. } => self.appeared(path),
            Change::Vanished { path } => self.vanished(path),
            Change::Synced => {
                self.synced.send_replace(true);
            }
            Change::Trouble { message } => {
                warn!(error = %message, "failed to watch the plugin folder, retrying");
                self.synced.send_replace(false);
            }
        }
    }
    pub(super) fn appeared(&self, socket: PathBuf) {
        self.state.appeared(&socket);
        self.handle.renew(socket);
    }

    pub(super) fn vanished(&self, socket: PathBuf) {
        self.state.vanished(&socket);
        self.handle.renew(socket);
    }
}
