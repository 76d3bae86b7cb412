//! Has a driver take and delete snapshots, as VolumeSnapshotContents ask for it.
//!
//! A VolumeSnapshotContent is made by the snapshot controller or by a person. For one that names a volume CreateSnapshot
//! is called until the snapshot is ready; one that names a snapshot is looked up. When it is deleted and the snapshot
//! controller has said that it may be, DeleteSnapshot is called before its finalizer goes.
//!
//! - `decide`: what a content needs next, and what a change of it means, as pure functions.
//! - `request`: from objects to the driver's calls, pure as well.
//! - `content`: the operation for one VolumeSnapshotContent; `status` holds what it writes, `calls` what it asks.
//! - `asked`: parameters of CreateSnapshot calls without a final answer.
//! - `reasons`: what makes a content be looked at.

mod asked;
mod calls;
mod content;
mod decide;
mod failure;
mod reasons;
mod request;
mod status;

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{
    EventRecorder, EventWriter, Events, Objects, Store, VolumeSnapshotClass, VolumeSnapshotContent,
};
use wharf_csi::Driver;
use wharf_facts::label;
use wharf_reconcile::{Backoff, Config, Reconciler, WorkqueueMetrics};

pub use self::request::SnapshotNames;
use self::{asked::Asked, content::ContentOperation};
pub(crate) use self::{decide::is_being_created, status::noted_parameters};
use crate::{Caches, Watched};

/// How a [`Snapshotter`] works; the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct SnapshotterOptions {
    /// The driver's name.
    pub driver: String,
    /// Only contents that are labelled with this node are worked on, for a driver whose controller runs on each node.
    pub node: Option<String>,
    /// How many snapshots are worked on at a time.
    pub workers: usize,
    /// The waits after failures of one content, and between looks at one that is not ready.
    pub backoff: Backoff,
    /// How often all contents are looked at without a reason; zero is never.
    pub resync: Duration,
    /// What snapshots are called in the driver.
    pub names: SnapshotNames,
    /// Whether the driver is told what a snapshot is called in the API.
    pub extra_create_metadata: bool,
    /// Where the queues are counted and timed, if someone asks.
    pub queues: Option<WorkqueueMetrics>,
}

impl SnapshotterOptions {
    /// The defaults for a driver.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            node: None,
            workers: 10,
            backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_mins(5) },
            resync: Duration::from_mins(15),
            names: SnapshotNames::default(),
            extra_create_metadata: false,
            queues: None,
        }
    }
}

/// The controller.
pub struct Snapshotter {
    shared: Arc<Shared>,
    writer: EventWriter,
}

/// What its operations share.
struct Shared {
    options: SnapshotterOptions,
    client: Client,
    driver: Driver,
    contents: Objects<VolumeSnapshotContent>,
    classes: Arc<Store<VolumeSnapshotClass>>,
    asked: Asked,
    events: Events,
}

impl Snapshotter {
    /// A snapshotter for `driver`, whose calls end after the timeout that it was made with.
    pub fn new(
        options: SnapshotterOptions,
        client: Client,
        driver: Driver,
        caches: Caches,
    ) -> Self {
        caches.want(&[Watched::Contents, Watched::SnapshotClasses]);
        let component = format!("csi-snapshotter {}", options.driver);
        let recorder = EventRecorder::new(client.clone(), component, "");
        let (events, writer) = Events::new(recorder);
        let shared = Shared {
            contents: Objects::new(client.clone(), caches.contents),
            classes: caches.snapshot_classes,
            asked: Asked::default(),
            client,
            driver,
            events,
            options,
        };
        Self { shared: Arc::new(shared), writer }
    }

    /// Works until it is told to stop, and then stops at once: no call and no write is begun after that. The caches have
    /// to be filled meanwhile by whoever made them.
    pub async fn run(self, stop: CancellationToken) {
        tokio::join!(self.shared.work(&stop), self.writer.run(stop.clone()));
    }
}

impl Shared {
    async fn work(self: &Arc<Self>, stop: &CancellationToken) {
        let caches = async {
            self.contents.store().synced().await;
            self.classes.synced().await;
        };
        if stop.run_until_cancelled(caches).await.is_none() {
            return;
        }
        let SnapshotterOptions { workers, backoff, ref queues, .. } = self.options;
        let name = "csi-snapshotter-content";
        let metrics = queues.as_ref().map(|queues| queues.queue(name));
        let contents = Reconciler::start(
            Config { name, parallelism: workers, backoff, metrics },
            ContentOperation { shared: Arc::clone(self), stop: stop.clone() },
        );
        let queue = contents.handle();
        let changes = self.subscribe(&queue);
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.resync(&queue) => {}
            () = self.reconnections(&queue) => {}
        }
        drop(changes);
        contents.drain(Duration::ZERO).await;
    }

    /// Whether this snapshotter works on a content.
    fn serves(&self, content: &VolumeSnapshotContent) -> bool {
        let served_by = content.metadata.labels.get(label::SNAPSHOT_MANAGED_BY);
        let of_node = self.options.node.as_deref().is_none_or(|node| served_by == Some(node));
        let class = content.spec.volume_snapshot_class_name.as_deref();
        let class = class.and_then(|name| self.classes.get(name));
        let of_driver = class.is_none_or(|class| class.driver == self.options.driver);
        of_node && of_driver && content.spec.driver == self.options.driver
    }
}
