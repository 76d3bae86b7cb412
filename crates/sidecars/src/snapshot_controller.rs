//! Binds VolumeSnapshots to VolumeSnapshotContents, for all drivers of a cluster.
//!
//! For a VolumeSnapshot of a claim it creates a content, which a
//! [`Snapshotter`](crate::snapshotter::Snapshotter) of the driver fulfils; a VolumeSnapshot of an
//! existing content is bound to it. The status of the VolumeSnapshot shows the state of the
//! content. While a snapshot is taken, its claim is protected. When a VolumeSnapshot is deleted,
//! its content is deleted too unless it is to be retained. A content without its VolumeSnapshot is
//! never deleted: it may be restored from a backup before its VolumeSnapshot.
//!
//! - `decide`: the content of a snapshot and its source, as pure functions; next to it `class`
//!   chooses a default class, and `node` the node whose snapshotter serves a content.
//! - `status`: builds patches of VolumeSnapshots, `document`: of contents and claims; pure as well.
//! - `snapshot`: the operation for one VolumeSnapshot, with `take`, `claim` and `deletion` for its
//!   creation, its source and its deletion.
//! - `content`: the operation for one VolumeSnapshotContent.
//! - `triggers`: queues objects on changes.

mod claim;
mod class;
mod content;
mod decide;
mod deletion;
mod document;
mod failure;
mod metrics;
mod node;
mod snapshot;
mod status;
mod take;
mod triggers;

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

/// Settings of a [`SnapshotController`]; the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct SnapshotControllerOptions {
    /// Snapshots that are processed concurrently.
    pub workers: usize,
    /// The back-off of one snapshot or content.
    pub backoff: Backoff,
    /// How often all snapshots are queued without a trigger; never if zero.
    pub resync: Duration,
    /// Label contents with the node whose snapshotter serves them, for drivers whose controller
    /// runs on each node.
    pub distributed: bool,
    /// Record the volume mode of the source in contents, so that no claim is restored in another
    /// mode.
    pub keep_volume_mode: bool,
    /// The metrics of the duration of snapshots.
    pub metrics: SnapshotMetrics,
    /// The metrics of the queues, if wanted.
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

/// The queues of the controller.
#[derive(Clone)]
struct Queues {
    snapshots: Handle<Key>,
    contents: Handle<Key>,
}

/// The controller.
pub struct SnapshotController {
    shared: Arc<SnapshotControllerCore>,
    writer: EventWriter,
}

/// State that the operations share.
struct SnapshotControllerCore {
    options: SnapshotControllerOptions,
    snapshots: Objects<VolumeSnapshot>,
    contents: Objects<VolumeSnapshotContent>,
    claims: Objects<PersistentVolumeClaim>,
    classes: Arc<Store<VolumeSnapshotClass>>,
    volumes: Arc<Store<PersistentVolume>>,
    nodes: Arc<Store<Node>>,
    /// Locked while a claim is protected or unprotected.
    locks: KeyedLocks,
    events: Events,
}

impl SnapshotController {
    /// A controller for the snapshots in the caches, which must be for all drivers.
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
        let shared = SnapshotControllerCore {
            snapshots: Objects::new(client.clone(), caches.snapshots),
            contents: Objects::new(client.clone(), caches.contents),
            claims: Objects::new(client, caches.claims),
            classes: caches.snapshot_classes,
            volumes: caches.volumes,
            nodes: caches.nodes,
            locks: KeyedLocks::default(),
            events,
            options,
        };
        Self { shared: Arc::new(shared), writer }
    }

    /// Works until `stop`, and then returns at once: no write begins after that. The caller fills
    /// the caches meanwhile.
    pub async fn run(self, stop: CancellationToken) {
        tokio::join!(self.shared.work(&stop), self.writer.run(stop.clone()));
    }
}

impl SnapshotControllerCore {
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
