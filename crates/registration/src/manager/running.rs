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
    operation::{Operator, SILENT, TURNS},
    world::World,
};

/// Operations at once. An operation is one connection and a few kilobytes; the bound keeps a thousand sockets at start
/// within an ordinary limit of open files.
pub(super) const PARALLELISM: usize = 512;
/// How long a stop waits for operations that are under way.
const DRAIN: Duration = Duration::from_secs(5);

/// Where and how plugins are looked for.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The watched folder, `<kubelet root>/plugins_registry`. Made if it is not there.
    pub root: PathBuf,
    /// The safety net under inotify.
    pub rescan: Duration,
    /// Between failed attempts at one socket.
    pub backoff: Backoff,
}

impl ManagerOptions {
    /// Kubelet's figures for the folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), rescan: Duration::from_secs(10), backoff: Backoff::KUBELET }
    }
}

/// The running plugin manager of a node.
pub struct PluginManager {
    world: Arc<World>,
    metrics: ManagerMetrics,
    reconciler: Reconciler<PathBuf>,
    watching: JoinSet<()>,
    stop: CancellationToken,
    synced: watch::Receiver<bool>,
}

impl PluginManager {
    /// Starts watching; sockets that are there already are registered, too.
    pub fn start(options: ManagerOptions, handlers: Handlers) -> Self {
        Self::start_with(options, handlers, Arc::new(SocketDial))
    }

    /// As [`PluginManager::start`], reaching plugins in another way.
    pub fn start_with(options: ManagerOptions, handlers: Handlers, dial: Arc<dyn Dial>) -> Self {
        let world = Arc::new(World::new());
        let metrics = ManagerMetrics::default();
        let reconciler = Reconciler::start(
            Config {
                name: "plugins",
                parallelism: PARALLELISM,
                backoff: options.backoff,
                metrics: None,
            },
            Operator {
                world: Arc::clone(&world),
                handlers,
                dial,
                metrics: metrics.clone(),
                turns: Semaphore::new(TURNS),
                silent: Semaphore::new(SILENT),
            },
        );
        let stop = CancellationToken::new();
        let (synced_sender, synced) = watch::channel(false);
        let mut watching = JoinSet::new();
        let feed =
            Feed { world: Arc::clone(&world), handle: reconciler.handle(), synced: synced_sender };
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
        Self { world, metrics, reconciler, watching, stop, synced }
    }

    /// The plugins as they stand now, by socket.
    pub fn plugins(&self) -> Vec<PluginView> {
        self.world.view()
    }

    /// What happens from now on. A follower that lags far behind misses events and is told how many.
    pub fn events(&self) -> broadcast::Receiver<PluginEvent> {
        self.world.events()
    }

    /// Whether the folder was looked through once, and the watch on it is whole.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.clone()
    }

    /// Waits until no operation runs or waits for its turn; those backing off do not count.
    pub async fn idle(&self) {
        self.reconciler.handle().idle().await;
    }

    /// Exports the manager's metrics.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        registry.register_collector(Box::new(Totals(Arc::clone(&self.world))));
    }

    /// Stops watching and waits for operations under way. Plugins stay registered with their handlers: the next
    /// manager finds their sockets again.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.watching.join_next().await.is_some() {}
        let cut = self.reconciler.drain(DRAIN).await;
        if !cut.is_empty() {
            warn!(sockets = ?cut, "operations were cut short by the stop");
        }
    }
}

/// Carries what the folder shows into the desired state.
pub(super) struct Feed {
    pub(super) world: Arc<World>,
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
                warn!(error = %message, "the plugin folder is not watched as it should be");
                self.synced.send_replace(false);
            }
        }
    }
    pub(super) fn appeared(&self, socket: PathBuf) {
        self.world.appeared(&socket);
        self.handle.renew(socket);
    }

    pub(super) fn vanished(&self, socket: PathBuf) {
        self.world.vanished(&socket);
        self.handle.renew(socket);
    }
}
