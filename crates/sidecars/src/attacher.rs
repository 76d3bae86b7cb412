//! Attaches volumes to nodes and detaches them, as VolumeAttachments ask for it.
//!
//! A VolumeAttachment is the wish; ControllerPublishVolume fulfils it, and ControllerUnpublishVolume is called before its
//! finalizer goes. PersistentVolumes get a finalizer as well, so that the volume is known for as long as it may be
//! attached. Errors live in the status of the VolumeAttachment, where people and the attach/detach controller look. A
//! driver that attaches nothing gets its VolumeAttachments marked as attached, which is all that others wait for.
//!
//! - `decide`: what an object needs next, and what a change of it means, as pure functions.
//! - `request`: from objects to the driver's calls, pure as well.
//! - `attachment`: the operation for one VolumeAttachment; `status` holds what it writes.
//! - `volume`: the operation for one PersistentVolume.
//! - `lane`: turns of attaching and detaching, apart from each other and fair between nodes.
//! - `reasons`: what makes an object be looked at; `audit`: the driver's own account differs from the API's.

mod attachment;
mod audit;
mod decide;
mod failure;
mod lane;
mod metrics;
mod reasons;
mod request;
mod status;
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
use self::{attachment::AttachmentOperation, lane::Lane, metrics::Lanes, volume::VolumeOperation};
use crate::{Caches, caches::Watched};

/// How many attachments are written to for each that the driver may attach at a time: it does not wait for the API.
const AHEAD: usize = 4;

/// How an [`Attacher`] works; the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct AttacherOptions {
    /// The driver's name, which VolumeAttachments call their attacher.
    pub driver: String,
    /// Only attachments of this node are worked on, for a driver whose controller runs on each node.
    pub node: Option<String>,
    /// How many volumes the driver attaches at a time, and how many it detaches.
    pub workers: usize,
    /// The waits after failures of one attachment or volume.
    pub backoff: Backoff,
    /// How often all objects are looked at without a reason; zero is never.
    pub resync: Duration,
    /// How often the driver is asked what is attached where; zero is never.
    pub audit: Duration,
    /// How long that may take in all.
    pub audit_timeout: Duration,
    /// How many volumes the driver is asked for at once; 0 leaves it to the driver.
    pub max_entries: i32,
    /// The filesystem of volumes that name none.
    pub default_fs_type: String,
    /// Where is told how many attachments wait.
    pub metrics: AttacherMetrics,
    /// Where the queues are counted and timed, if someone asks.
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

/// Where work is queued.
#[derive(Clone)]
struct Queues {
    attachments: Handle<Key>,
    volumes: Handle<Key>,
}

/// The controller.
pub struct Attacher(Arc<Shared>);

/// What its operations share.
struct Shared {
    options: AttacherOptions,
    finalizer: String,
    client: Client,
    driver: Driver,
    attachments: Objects<VolumeAttachment>,
    volumes: Objects<PersistentVolume>,
    nodes: Arc<Store<CsiNode>>,
    attaching: Arc<Lane>,
    /// The part of attaching that is the driver's.
    publishing: Arc<Lane>,
    detaching: Arc<Lane>,
    /// Attachments that are worked on once more although they look finished.
    forced: Mutex<HashSet<Key>>,
}

impl Attacher {
    /// An attacher for `driver`, whose calls end after the timeout that it was made with.
    pub fn new(options: AttacherOptions, client: Client, driver: Driver, caches: Caches) -> Self {
        caches.want(&[Watched::Attachments, Watched::Volumes, Watched::CsiNodes]);
        let lane = |turns| Arc::new(Lane::new(turns));
        let lanes = Lanes {
            attach: lane(options.workers.saturating_mul(AHEAD)),
            publish: lane(options.workers),
            detach: lane(options.workers),
        };
        options.metrics.tell_of(lanes.clone());
        Self(Arc::new(Shared {
            finalizer: finalizer::attacher(&options.driver),
            attachments: Objects::new(client.clone(), caches.attachments),
            volumes: Objects::new(client.clone(), caches.volumes),
            nodes: caches.csi_nodes,
            attaching: lanes.attach,
            publishing: lanes.publish,
            detaching: lanes.detach,
            forced: Mutex::default(),
            client,
            driver,
            options,
        }))
    }

    /// Works until it is told to stop, and then stops at once: no call and no write is begun after that. The caches have
    /// to be filled meanwhile by whoever made them.
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
        // Unbounded here: the lanes are the bound, and a limit before them would make detaches wait for attaches.
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

impl Shared {
    /// Whether this attacher works on an attachment.
    fn serves(&self, attachment: &VolumeAttachment) -> bool {
        let here = |node: &String| attachment.spec.node_name == *node;
        attachment.spec.attacher == self.options.driver
            && self.options.node.as_ref().is_none_or(here)
    }

    fn forced(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.forced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
