//! Creates volumes for claims, and deletes them when they are released.
//!
//! CreateVolume fulfils a PersistentVolumeClaim that names this driver, and a PersistentVolume
//! publishes the volume. The volume's name follows from the claim, so that an attempt that was cut
//! short is finished by the next one and never creates a second volume. A volume that the driver
//! may have begun is not abandoned when its claim is deleted: it is finished, published, and then
//! deleted as any other.
//!
//! - `decide`: the next step for a claim or a volume, as pure functions; `state`: what a failure
//!   says about the volume.
//! - `persistent_volume`: builds the object from the driver's answer.
//! - `claim`: the operation for one claim. `plan` looks up the parts of its request, `make` calls
//!   the driver, `outcome` writes the result, and `ledger` keeps its state until the next attempt.
//! - `unsettled`: the mark on a claim whose CreateVolume had no final answer, which outlasts this
//!   process; `note` is its content. `standby` removes the mark of bound claims while another
//!   process leads.
//! - `carried`: the state that outlasts a term as leader; `handover` marks claims for the next
//!   leader. `last` settles volumes without any object before a process ends.
//! - `volume`: the operation for one PersistentVolume.
//! - `protection`: sources of volumes are not deleted while they are used; `sweep` finds those that
//!   were protected too long.
//! - `capacity`: publishes the driver's free capacity for the scheduler.
//! - `leftovers`: reports volumes that no object names.
//! - `triggers`: queues objects on changes.

mod capabilities;
mod capacity;
mod carried;
mod claim;
mod decide;
mod failure;
mod handover;
mod last;
mod ledger;
mod leftovers;
mod make;
mod metrics;
mod name;
mod note;
mod options;
mod outcome;
mod parameters;
mod persistent_volume;
mod plan;
mod protection;
mod request;
mod secrets;
mod source;
mod standby;
mod state;
mod sweep;
mod topology;
mod triggers;
mod unsettled;
mod volume;

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_cluster::{
    CsiNode, EventRecorder, EventWriter, Events, Key, Node, Objects, PersistentVolume,
    PersistentVolumeClaim, StorageClass, Store, VolumeAttachment, VolumeAttributesClass,
    VolumeSnapshot, VolumeSnapshotContent,
};
use wharf_csi::Driver;
use wharf_reconcile::{Handle, KeyedLocks, Reconciler};

use self::{
    capabilities::ProvisionerCapabilities,
    capacity::{Capacities, CapacityInputs},
    claim::{ClaimKey, ClaimOperation},
    failure::Failure,
    last::LAST_ANSWERS,
    ledger::Ledger,
    protection::{Held, Protected, ProtectionOperation},
    topology::{Places, Segment},
    volume::VolumeOperation,
};
pub use self::{
    capacity::{CapacityOptions, OwnerOptions},
    carried::UnsettledVolumes,
    metrics::ProvisionerMetrics,
    name::VolumeNames,
    options::ProvisionerOptions,
    standby::StandbyProvisioner,
    topology::TopologyOptions,
};
pub(crate) use self::{
    decide::{is_volume_of, selected_node},
    note::Note,
    unsettled::remove_mark,
};
use crate::{Caches, caches::Watched};

/// The pause between two requests to a driver that does not report its capabilities.
const PAUSE: Duration = Duration::from_secs(1);

/// The controller.
pub struct Provisioner {
    options: ProvisionerOptions,
    client: Client,
    driver: Driver,
    caches: Caches,
    capacity: Option<(CapacityOptions, Client)>,
}

/// The queues of the controller.
#[derive(Clone)]
struct Queues {
    claims: Handle<ClaimKey>,
    volumes: Handle<Key>,
    protections: Handle<Protected>,
}

/// State that the operations share.
struct ProvisionerCore {
    options: ProvisionerOptions,
    /// Identifies PersistentVolumes that this process created.
    identity: String,
    client: Client,
    driver: Driver,
    claims: Objects<PersistentVolumeClaim>,
    volumes: Objects<PersistentVolume>,
    classes: Arc<Store<StorageClass>>,
    attachments: Arc<Store<VolumeAttachment>>,
    csi_nodes: Arc<Store<CsiNode>>,
    nodes: Arc<Store<Node>>,
    /// Read for each use and not kept.
    attributes_classes: Objects<VolumeAttributesClass>,
    snapshots: Objects<VolumeSnapshot>,
    contents: Objects<VolumeSnapshotContent>,
    /// The segment of the node, for a driver that serves one node.
    place: Option<Segment>,
    ledger: Arc<Ledger>,
    /// Cancelled when a stopping provisioner has marked all claims that can be marked.
    last_marks: CancellationToken,
    held: Held,
    /// Locked while a source is protected or unprotected: otherwise one operation would rely on a
    /// finalizer that another, which does not know of it, is about to remove.
    locks: KeyedLocks,
    capacities: Option<Arc<Capacities>>,
    events: Events,
}

impl Provisioner {
    /// A provisioner for `driver`, whose calls have the driver's timeout.
    pub fn new(
        options: ProvisionerOptions,
        client: Client,
        driver: Driver,
        caches: Caches,
    ) -> Self {
        caches.want(&[Watched::Claims, Watched::Volumes, Watched::StorageClasses]);
        Self { options, client, driver, caches, capacity: None }
    }

    /// Also publishes the driver's free capacity for the scheduler, through a client of its own.
    #[must_use]
    pub fn telling_capacity(mut self, options: CapacityOptions, client: Client) -> Self {
        self.capacity = Some((options, client));
        self
    }

    /// Works until `stop`, and then returns at once, except for volumes that the driver may be
    /// creating: their claims are marked, and CreateVolume is repeated for claims that cannot be
    /// marked, for 10 s at the most. The caller fills the caches meanwhile.
    pub async fn run(self, stop: CancellationToken) {
        let Some((shared, writer)) = stop.run_until_cancelled(self.prepare()).await else {
            return;
        };
        let shared = Arc::new(shared);
        shared.ledger.begin_term();
        let _term = shared.options.metrics.term(shared.capacities.clone());
        let ProvisionerOptions { workers, protection_workers, .. } = shared.options;
        let config = |name, parallelism| shared.options.queue(name, parallelism);
        let parts = || (Arc::clone(&shared), stop.clone());
        let (operation, token) = parts();
        let claims = Reconciler::start(config("claims", workers), ClaimOperation(operation, token));
        let (operation, token) = parts();
        let volumes =
            Reconciler::start(config("volumes", workers), VolumeOperation(operation, token));
        let (operation, token) = parts();
        let protections = Reconciler::start(
            config("cloning-protection", protection_workers),
            ProtectionOperation(operation, token),
        );
        let queues = Queues {
            claims: claims.handle(),
            volumes: volumes.handle(),
            protections: protections.handle(),
        };
        let changes = shared.subscribe(&queues);
        // Deleted claims of an earlier term are in no cache.
        for claim in shared.ledger.unmarked() {
            queues.claims.wake(ClaimKey::of(&claim));
        }
        let mut writing = JoinSet::new();
        writing.spawn(writer.run(stop.clone()));
        tokio::select! {
            () = stop.cancelled() => {}
            () = shared.resync(&queues) => {}
            () = shared.reconnections(&queues) => {}
            () = shared.sweeps(&queues) => {}
            () = shared.leftovers() => {}
            () = shared.publish_capacity(&stop) => {}
        }
        drop(changes);
        let (none, last) = (Duration::ZERO, Instant::now() + LAST_ANSWERS);
        tokio::join!(
            shared.mark_all(),
            claims.drain(LAST_ANSWERS),
            volumes.drain(none),
            protections.drain(none)
        );
        shared.settle_last(last).await;
        writing.join_all().await;
    }

    /// Fetches the driver's capabilities, starts the watches that they require, and waits until
    /// those caches are complete.
    async fn prepare(self) -> (ProvisionerCore, EventWriter) {
        let Self { options, client, driver, caches, capacity } = self;
        let (capabilities, place) = loop {
            match fetch_capabilities(&driver, &options).await {
                Ok(known) => break known,
                Err(error) => {
                    tracing::warn!(%error, "failed to fetch capabilities of the CSI driver, retrying");
                    sleep(PAUSE).await;
                }
            }
        };
        if capabilities.publishes {
            caches.want(&[Watched::Attachments]);
            caches.attachments.synced().await;
        }
        if capacity.is_some() && !capabilities.capacity {
            tracing::warn!(
                "not publishing capacity: the CSI driver does not have the capability GET_CAPACITY"
            );
        }
        let capacity = capacity.filter(|_| capabilities.capacity);
        if (capabilities.topology || capacity.is_some()) && place.is_none() {
            caches.want(&[Watched::CsiNodes, Watched::Nodes]);
            caches.csi_nodes.synced().await;
            caches.nodes.synced().await;
        }
        caches.storage_classes.synced().await;
        caches.volumes.synced().await;
        caches.claims.synced().await;
        let capacities = capacity.map(|(settings, client)| {
            let inputs = CapacityInputs {
                driver_name: options.driver.clone(),
                driver: driver.clone(),
                node: options.node.clone(),
                place: place.clone(),
                classes: Arc::clone(&caches.storage_classes),
                csi_nodes: Arc::clone(&caches.csi_nodes),
                nodes: Arc::clone(&caches.nodes),
            };
            Arc::new(Capacities::new(settings, client, inputs))
        });
        let recorder = EventRecorder::new(client.clone(), COMPONENT, options.host.clone());
        let (events, writer) = Events::new(recorder);
        let shared = ProvisionerCore {
            identity: identity(&options),
            claims: Objects::new(client.clone(), caches.claims),
            volumes: Objects::new(client.clone(), caches.volumes),
            classes: caches.storage_classes,
            attachments: caches.attachments,
            csi_nodes: caches.csi_nodes,
            nodes: caches.nodes,
            attributes_classes: Objects::new(client.clone(), Store::new(|_| false)),
            snapshots: Objects::new(client.clone(), Store::new(|_| false)),
            contents: Objects::new(client.clone(), Store::new(|_| false)),
            place,
            ledger: options.unsettled.of(&options.driver),
            last_marks: CancellationToken::new(),
            held: Held::default(),
            locks: KeyedLocks::default(),
            capacities,
            events,
            client,
            driver,
            options,
        };
        (shared, writer)
    }
}

/// The component in events.
const COMPONENT: &str = "external-provisioner";

/// The driver's capabilities, and its segment if it serves one node.
async fn fetch_capabilities(
    driver: &Driver,
    options: &ProvisionerOptions,
) -> Result<(ProvisionerCapabilities, Option<Segment>), Status> {
    let capabilities =
        ProvisionerCapabilities::of(&driver.capabilities().await?, options.topology.enabled);
    let place = match options.node {
        Some(_) => Some(driver.node_info().await?.topology),
        None => None,
    };
    Ok((capabilities, place))
}

/// `<ms>-<random>-<driver>[-<node>]`.
fn identity(options: &ProvisionerOptions) -> String {
    let now = Timestamp::now().as_millisecond();
    // Each state has random keys, drawn by the standard library.
    let random = RandomState::new().hash_one(()) % 10_000;
    let node = options.node.as_ref().map(|node| format!("-{node}")).unwrap_or_default();
    format!("{now}-{random}-{}{node}", options.driver)
}

impl ProvisionerCore {
    /// The driver's capabilities, as reported now.
    async fn capabilities(&self) -> Result<ProvisionerCapabilities, Failure> {
        let capabilities = self.driver.capabilities().await;
        let places = self.options.topology.enabled;
        capabilities
            .map(|capabilities| ProvisionerCapabilities::of(&capabilities, places))
            .map_err(|status| Failure::Away(Box::new(status)))
    }

    /// The driver's capabilities, once the driver is connected.
    async fn wait_capabilities(&self) -> ProvisionerCapabilities {
        loop {
            if let Ok(capabilities) = self.capabilities().await {
                return capabilities;
            }
            sleep(PAUSE).await;
        }
    }

    async fn publish_capacity(&self, stop: &CancellationToken) {
        match &self.capacities {
            Some(capacities) => {
                capacities.run(self.options.queue("csistoragecapacity", 1), stop).await;
            }
            None => std::future::pending().await,
        }
    }

    fn places(&self) -> Places<'_> {
        match (&self.options.node, &self.place) {
            (Some(node), Some(segment)) => Places::Own { node, segment },
            _ => Places::Cluster {
                driver: &self.options.driver,
                csi_nodes: &self.csi_nodes,
                nodes: &self.nodes,
            },
        }
    }
}
