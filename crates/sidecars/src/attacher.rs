//! Attaches volumes to nodes and detaches them, as VolumeAttachments request it.
//!
//! ControllerPublishVolume fulfils a VolumeAttachment, and ControllerUnpublishVolume is called
//! before its finalizer is removed. PersistentVolumes get a finalizer as well, so that the volume
//! is known for as long as it may be attached. Errors are written to the status of the
//! VolumeAttachment, where people and the attach/detach controller look. VolumeAttachments of a
//! driver without ControllerPublishVolume are only marked as attached, because other components
//! wait for that.
//!
//! - `decide`: the next step for an object, and the reaction to its changes, as pure functions.
//! - `request`: builds the driver's requests from objects; pure as well.
//! - `attachment`: the operation for one VolumeAttachment; `status` builds its patches.
//! - `volume`: the operation for one PersistentVolume.
//! - `fair_semaphore`: limits concurrent calls, separately for attaching and detaching, and fairly
//!   between nodes.
//! - `triggers`: queues objects on changes; `audit`: compares the driver's attachments with the
//!   API's.

mod attachment;
mod audit;
mod decide;
mod failure;
mod fair_semaphore;
mod metrics;
mod request;
mod status;
mod triggers;
mod volume;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::Client;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{CsiNode, Key, Objects, PersistentVolume, Store, VolumeAttachment};
use wharf_csi::Driver;
use wharf_facts::finalizer;
use wharf_reconcile::{Backoff, Config, Handle, Reconciler, WorkqueueMetrics};

pub use self::metrics::AttacherMetrics;
use self::{
    attachment::AttachmentOperation, fair_semaphore::FairSemaphore, metrics::AttacherSemaphores,
    volume::VolumeOperation,
};
use crate::{Caches, caches::Watched};

/// VolumeAttachments that are written concurrently for each concurrent call: the driver does not
/// wait for the API.
const AHEAD: usize = 4;

/// Settings of an [`Attacher`]; the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct AttacherOptions {
    /// The driver's name, which VolumeAttachments name as their attacher.
    pub driver: String,
    /// Serve only VolumeAttachments of this node, for a driver whose controller runs on each node.
    pub node: Option<String>,
    /// Concurrent ControllerPublishVolume calls, and as many ControllerUnpublishVolume calls.
    pub workers: usize,
    /// The back-off of one attachment or volume.
    pub backoff: Backoff,
    /// How often all objects are queued without a trigger; never if zero.
    pub resync: Duration,
    /// How often the driver's attachments are compared with the API's; never if zero.
    pub audit: Duration,
    /// Limit for one comparison.
    pub audit_timeout: Duration,
    /// Page size of ListVolumes; 0 leaves it to the driver.
    pub max_entries: i32,
    /// The filesystem of volumes that name none.
    pub default_fs_type: String,
    /// The metrics of waiting attachments.
    pub metrics: AttacherMetrics,
    /// The metrics of the queues, if wanted.
    pub queues: Option<WorkqueueMetrics>,
}

impl AttacherOptions {
    /// The defaults for a driver.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            node: None,
            workers: 10,
            backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_mins(5) },
            resync: Duration::from_mins(10),
            audit: Duration::from_mins(1),
            audit_timeout: Duration::from_secs(15),
            max_entries: 0,
            default_fs_type: String::new(),
            metrics: AttacherMetrics::default(),
            queues: None,
        }
    }
}

/// The queues of the controller.
#[derive(Clone)]
struct Queues {
    attachments: Handle<Key>,
    volumes: Handle<Key>,
}

/// The controller.
pub struct Attacher(Arc<AttacherCore>);

/// State that the operations share.
struct AttacherCore {
    options: AttacherOptions,
    finalizer: String,
    client: Client,
    driver: Driver,
    attachments: Objects<VolumeAttachment>,
    volumes: Objects<PersistentVolume>,
    nodes: Arc<Store<CsiNode>>,
    attaching: Arc<FairSemaphore>,
    /// Limits concurrent ControllerPublishVolume calls.
    publishing: Arc<FairSemaphore>,
    detaching: Arc<FairSemaphore>,
    /// Attachments to be processed again although they look finished.
    forced: Mutex<HashSet<Key>>,
}

impl Attacher {
    /// An attacher for `driver`, whose calls have the driver's timeout.
    pub fn new(options: AttacherOptions, client: Client, driver: Driver, caches: Caches) -> Self {
        caches.want(&[Watched::Attachments, Watched::Volumes, Watched::CsiNodes]);
        let semaphore = |permits| Arc::new(FairSemaphore::new(permits));
        let semaphores = AttacherSemaphores {
            attach: semaphore(options.workers.saturating_mul(AHEAD)),
            publish: semaphore(options.workers),
            detach: semaphore(options.workers),
        };
        options.metrics.observe(semaphores.clone());
        Self(Arc::new(AttacherCore {
            finalizer: finalizer::attacher(&options.driver),
            attachments: Objects::new(client.clone(), caches.attachments),
            volumes: Objects::new(client.clone(), caches.volumes),
            nodes: caches.csi_nodes,
            attaching: semaphores.attach,
            publishing: semaphores.publish,
            detaching: semaphores.detach,
            forced: Mutex::default(),
            client,
            driver,
            options,
        }))
    }

    /// Works until `stop`, and then returns at once: no call or write begins after that. The caller
    /// fills the caches meanwhile.
    pub async fn run(self, stop: CancellationToken) {
        let shared = self.0;
        let caches = async {
            shared.attachments.store().synced().await;
            shared.volumes.store().synced().await;
            shared.nodes.synced().await;
        };
        if stop.run_until_cancelled(caches).await.is_none() {
            return;
        }
        let AttacherOptions { workers, backoff, ref queues, .. } = shared.options;
        let config = |name, parallelism| {
            let metrics = queues.as_ref().map(|queues| queues.queue(name));
            Config { name, parallelism, backoff, metrics }
        };
        let volumes = Reconciler::start(
            config("csi-attacher-pv", workers),
            VolumeOperation { shared: Arc::clone(&shared), stop: stop.clone() },
        );
        // Unbounded here: the semaphores are the limit, and a limit before them would make detaches
        // wait for attaches.
        let attachments = Reconciler::start(
            config("csi-attacher-va", usize::MAX),
            AttachmentOperation { shared: Arc::clone(&shared), stop: stop.clone() },
        );
        let queues = Queues { attachments: attachments.handle(), volumes: volumes.handle() };
        let changes = shared.subscribe(&queues);
        tokio::select! {
            () = stop.cancelled() => {}
            () = shared.resync(&queues) => {}
            () = shared.reconnections(&queues) => {}
            () = shared.audits(&queues.attachments) => {}
        }
        drop(changes);
        tokio::join!(attachments.drain(Duration::ZERO), volumes.drain(Duration::ZERO));
    }
}

impl AttacherCore {
    /// Whether this attacher serves an attachment.
    fn serves(&self, attachment: &VolumeAttachment) -> bool {
        let here = |node: &String| attachment.spec.node_name == *node;
        attachment.spec.attacher == self.options.driver
            && self.options.node.as_ref().is_none_or(here)
    }

    fn forced(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.forced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
