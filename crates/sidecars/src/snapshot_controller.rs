//! Binds VolumeSnapshots to VolumeSnapshotContents, for the drivers of all of a cluster.
//!
//! For a snapshot of a claim a content is made, which a [`Snapshotter`](crate::snapshotter::Snapshotter) of the driver
//! fulfils; a snapshot of a content that is there is bound to it. What becomes of the content shows in the status of
//! the snapshot. While a snapshot is taken, its claim is protected; and when a snapshot is deleted, its content goes
//! with it unless it is to be kept. A content without its snapshot is never deleted: it may have been restored from a
//! backup, and someone may still come for it.
//!
//! - `decide`: which content a snapshot is of and what it may be taken of, as pure functions; `class` and `node` beside
//!   it choose a default class, and the node whose snapshotter is to serve.
//! - `status`: what is written to snapshots, `document`: what is written to contents and claims; pure as well.
//! - `snapshot`: the operation for one VolumeSnapshot, with `take`, `claim` and `deletion` for its beginning, its source
//!   and its end.
//! - `content`: the operation for one VolumeSnapshotContent.
//! - `reasons`: what makes an object be looked at.

mod claim;
mod class;
mod content;
mod decide;
mod deletion;
mod document;
mod failure;
mod metrics;
mod node;
mod reasons;
mod snapshot;
mod status;
mod take;

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{
    EventRecorder, EventWriter, Events, Key, Node, Objects, PersistentVolume,
    PersistentVolumeClaim, Store, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent,
};
use wharf_reconcile::{Backoff, Config, Handle, KeyedLocks, Reconciler, WorkqueueMetrics};

pub use self::metrics::SnapshotMetrics;
use self::{content::ContentOperation, snapshot::SnapshotOperation};
use crate::{Caches, Watched};

/// How a [`SnapshotController`] works; the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct SnapshotControllerOptions {
    /// How many snapshots are worked on at a time.
    pub workers: usize,
    /// The waits after failures of one snapshot or content.
    pub backoff: Backoff,
    /// How often all snapshots are looked at without a reason; zero is never.
    pub resync: Duration,
    /// Whether contents name the node whose snapshotter is to serve them, for drivers whose controller runs on each node.
    pub distributed: bool,
    /// Whether contents say in which mode their volume was, so that no claim restores it in another.
    pub keep_volume_mode: bool,
    /// Where is told how long snapshots take.
    pub metrics: SnapshotMetrics,
    /// Where the queues are counted and timed, if someone asks.
    pub queues: Option<WorkqueueMetrics>,
}

impl Default for SnapshotControllerOptions {
    fn default() -> Self {
        Self {
            workers: 10,
            backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_mins(5) },
            resync: Duration::from_mins(15),
            distributed: false,
            keep_volume_mode: true,
            metrics: SnapshotMetrics::default(),
            queues: None,
        }
    }
}

/// Where work is queued.
#[derive(Clone)]
struct Queues {
    snapshots: Handle<Key>,
    contents: Handle<Key>,
}

/// The controller.
pub struct SnapshotController {
    shared: Arc<Shared>,
    writer: EventWriter,
}

/// What its operations share.
struct Shared {
    options: SnapshotControllerOptions,
    snapshots: Objects<VolumeSnapshot>,
    contents: Objects<VolumeSnapshotContent>,
    claims: Objects<PersistentVolumeClaim>,
    classes: Arc<Store<VolumeSnapshotClass>>,
    volumes: Arc<Store<PersistentVolume>>,
    nodes: Arc<Store<Node>>,
    /// Whoever holds a claim and whoever lets it go take turns.
    turns: KeyedLocks,
    events: Events,
}

impl SnapshotController {
    /// A controller for the snapshots that the caches know: those of all drivers.
    pub fn new(options: SnapshotControllerOptions, client: Client, caches: Caches) -> Self {
        caches.want(&[
            Watched::Snapshots,
            Watched::Contents,
            Watched::SnapshotClasses,
            Watched::Claims,
            Watched::Volumes,
        ]);
        if options.distributed {
            caches.want(&[Watched::Nodes]);
        }
        let recorder = EventRecorder::new(client.clone(), "snapshot-controller", "");
        let (events, writer) = Events::new(recorder);
        let shared = Shared {
            snapshots: Objects::new(client.clone(), caches.snapshots),
            contents: Objects::new(client.clone(), caches.contents),
            claims: Objects::new(client, caches.claims),
            classes: caches.snapshot_classes,
            volumes: caches.volumes,
            nodes: caches.nodes,
            turns: KeyedLocks::default(),
            events,
            options,
        };
        Self { shared: Arc::new(shared), writer }
    }

    /// Works until it is told to stop, and then stops at once: no write is begun after that. The caches have to be
    /// filled meanwhile by whoever made them.
    pub async fn run(self, stop: CancellationToken) {
        tokio::join!(self.shared.work(&stop), self.writer.run(stop.clone()));
    }
}

impl Shared {
    async fn work(self: &Arc<Self>, stop: &CancellationToken) {
        if stop.run_until_cancelled(self.synced()).await.is_none() {
            return;
        }
        let _term = self.options.metrics.term();
        let SnapshotControllerOptions { workers, backoff, ref queues, .. } = self.options;
        let config = |name| {
            let metrics = queues.as_ref().map(|queues| queues.queue(name));
            Config { name, parallelism: workers, backoff, metrics }
        };
        let contents = Reconciler::start(
            config("snapshot-controller-content"),
            ContentOperation { shared: Arc::clone(self), stop: stop.clone() },
        );
        let snapshots = Reconciler::start(
            config("snapshot-controller-snapshot"),
            SnapshotOperation { shared: Arc::clone(self), stop: stop.clone() },
        );
        let queues = Queues { snapshots: snapshots.handle(), contents: contents.handle() };
        let changes = self.subscribe(&queues);
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.resync(&queues) => {}
        }
        drop(changes);
        tokio::join!(snapshots.drain(Duration::ZERO), contents.drain(Duration::ZERO));
    }

    async fn synced(&self) {
        self.snapshots.store().synced().await;
        self.contents.store().synced().await;
        self.claims.store().synced().await;
        self.classes.synced().await;
        self.volumes.synced().await;
        if self.options.distributed {
            self.nodes.synced().await;
        }
    }
}
