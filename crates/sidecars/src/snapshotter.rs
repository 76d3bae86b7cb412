//! Creates and deletes snapshots in a driver, as VolumeSnapshotContents request it.
//!
//! The snapshot controller or a person creates a VolumeSnapshotContent. For one that names a volume
//! CreateSnapshot is called until the snapshot is ready; one that names a snapshot is looked up.
//! When it is deleted and the snapshot controller has annotated it for deletion, DeleteSnapshot is
//! called before its finalizer is removed.
//!
//! - `decide`: the next step for a content, and the reaction to its changes, as pure functions.
//! - `request`: builds the driver's requests from objects; pure as well.
//! - `content`: the operation for one VolumeSnapshotContent; `status` builds its patches, `calls`
//!   makes its calls.
//! - `asked`: parameters of CreateSnapshot calls without a final answer.
//! - `triggers`: queues contents on changes.

mod asked;
mod calls;
mod content;
mod decide;
mod failure;
mod request;
mod status;
mod triggers;

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

/// Settings of a [`Snapshotter`]; the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct SnapshotterOptions {
    /// The driver's name.
    pub driver: String,
    /// Serve only contents with the label of this node, for a driver whose controller runs on each
    /// node.
    pub node: Option<String>,
    /// Snapshots that are processed concurrently.
    pub workers: usize,
    /// The back-off of one content, also between checks of a snapshot that is not ready.
    pub backoff: Backoff,
    /// How often all contents are queued without a trigger; never if zero.
    pub resync: Duration,
    /// The names of snapshots in the driver.
    pub names: SnapshotNames,
    /// Whether the driver gets the names of the API objects.
    pub extra_create_metadata: bool,
    /// The metrics of the queues, if wanted.
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
    shared: Arc<SnapshotterCore>,
    writer: EventWriter,
}

/// State that the operations share.
struct SnapshotterCore {
    options: SnapshotterOptions,
    client: Client,
    driver: Driver,
    contents: Objects<VolumeSnapshotContent>,
    classes: Arc<Store<VolumeSnapshotClass>>,
    asked: Asked,
    events: Events,
}

impl Snapshotter {
    /// A snapshotter for `driver`, whose calls have the driver's timeout.
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
        let shared = SnapshotterCore {
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

    /// Works until `stop`, and then returns at once: no call or write begins after that. The caller
    /// fills the caches meanwhile.
    pub async fn run(self, stop: CancellationToken) {
        tokio::join!(self.shared.work(&stop), self.writer.run(stop.clone()));
    }
}

impl SnapshotterCore {
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

    /// Whether this snapshotter serves a content.
    fn serves(&self, content: &VolumeSnapshotContent) -> bool {
        let served_by = content.metadata.labels.get(label::SNAPSHOT_MANAGED_BY);
        let of_node = self.options.node.as_deref().is_none_or(|node| served_by == Some(node));
        let class = content.spec.volume_snapshot_class_name.as_deref();
        let class = class.and_then(|name| self.classes.get(name));
        let of_driver = class.is_none_or(|class| class.driver == self.options.driver);
        of_node && of_driver && content.spec.driver == self.options.driver
    }
}
