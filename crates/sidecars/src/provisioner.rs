//! Makes volumes for claims, and deletes them when they are released.
//!
//! A PersistentVolumeClaim that names this driver is the wish; CreateVolume fulfils it, and a PersistentVolume tells others
//! of it. The volume's name follows from the claim, so that whatever is cut short is finished by the next attempt and never
//! made twice. A volume that the driver may have begun is not given up when its claim goes: it is finished, shown, and
//! then deleted as every other.
//!
//! - `decide`: what a claim or a volume needs next, as pure functions; `state`: what a failure says about the volume.
//! - `persistent_volume`: from the driver's answer to the object.
//! - `claim`: the operation for one claim. `plan` looks up what its call needs, `make` calls the driver, `outcome` writes
//!   down what came of it, and `ledger` is what is remembered until the next attempt.
//! - `unsettled`: the mark on a claim whose CreateVolume had no final answer, which outlasts this process; `note` is what it
//!   says. `standby` removes the mark of bound claims while another process leads.
//! - `carried`: what outlasts a term as leader; `handover` marks claims for the leader that follows. `last` finds out about
//!   volumes that no object tells of before a process ends.
//! - `volume`: the operation for one PersistentVolume.
//! - `protection`: sources of volumes do not go while they are used; `sweep` finds those that were held too long.
//! - `capacity`: what the driver can still make, for the scheduler.
//! - `leftovers`: volumes that nobody asks for any more, for people.
//! - `reasons`: what makes an object be looked at.

mod abilities;
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
mod reasons;
mod request;
mod secrets;
mod source;
mod standby;
mod state;
mod sweep;
mod topology;
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
    abilities::Abilities,
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

/// Between two questions to a driver that does not say what it can do.
const PAUSE: Duration = Duration::from_secs(1);

/// The controller.
pub struct Provisioner {
    options: ProvisionerOptions,
    client: Client,
    driver: Driver,
    caches: Caches,
    capacity: Option<(CapacityOptions, Client)>,
}

/// Where work is queued.
#[derive(Clone)]
struct Queues {
    claims: Handle<ClaimKey>,
    volumes: Handle<Key>,
    protections: Handle<Protected>,
}

/// What its operations share.
struct Shared {
    options: ProvisionerOptions,
    /// Tells volumes of this process from those of others.
    identity: String,
    client: Client,
    driver: Driver,
    claims: Objects<PersistentVolumeClaim>,
    volumes: Objects<PersistentVolume>,
    classes: Arc<Store<StorageClass>>,
    attachments: Arc<Store<VolumeAttachment>>,
    csi_nodes: Arc<Store<CsiNode>>,
    nodes: Arc<Store<Node>>,
    /// Read when they are needed, and not kept.
    attributes_classes: Objects<VolumeAttributesClass>,
    snapshots: Objects<VolumeSnapshot>,
    contents: Objects<VolumeSnapshotContent>,
    /// Where the node is whose driver this is alone for.
    place: Option<Segment>,
    ledger: Arc<Ledger>,
    /// Cancelled when a provisioner that stops has marked all claims that take a mark.
    last_marks: CancellationToken,
    held: Held,
    /// Whoever holds a source and whoever lets it go take turns: one that sees a finalizer would else rely on it while
    /// another, who knows nothing of the first, is about to remove it.
    turns: KeyedLocks,
    capacities: Option<Arc<Capacities>>,
    events: Events,
}

impl Provisioner {
    /// A provisioner for `driver`, whose calls end after the timeout that it was made with.
    pub fn new(
        options: ProvisionerOptions,
        client: Client,
        driver: Driver,
        caches: Caches,
    ) -> Self {
        caches.want(&[Watched::Claims, Watched::Volumes, Watched::StorageClasses]);
        Self { options, client, driver, caches, capacity: None }
    }

    /// Has it tell the scheduler how much the driver can still make, by a client that nothing else waits for.
    #[must_use]
    pub fn telling_capacity(mut self, options: CapacityOptions, client: Client) -> Self {
        self.capacity = Some((options, client));
        self
    }

    /// Works until it is told to stop, and then stops at once, but for volumes that the driver may be making: their claims are
    /// marked, and those of claims that take no mark are asked for until there is an answer, for 10 s at the most. The caches
    /// have to be filled meanwhile by whoever made them.
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
        let (operation, told) = parts();
        let claims = Reconciler::start(config("claims", workers), ClaimOperation(operation, told));
        let (operation, told) = parts();
        let volumes =
            Reconciler::start(config("volumes", workers), VolumeOperation(operation, told));
        let (operation, told) = parts();
        let protections = Reconciler::start(
            config("cloning-protection", protection_workers),
            ProtectionOperation(operation, told),
        );
        let queues = Queues {
            claims: claims.handle(),
            volumes: volumes.handle(),
            protections: protections.handle(),
        };
        let changes = shared.subscribe(&queues);
        // Claims of an earlier term that are gone are in no cache.
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
            () = shared.tell_capacity(&stop) => {}
        }
        drop(changes);
        let (none, last) = (Duration::ZERO, Instant::now() + LAST_ANSWERS);
        tokio::join!(
            shared.mark_all(),
            claims.drain(LAST_ANSWERS),
            volumes.drain(none),
            protections.drain(none)
        );
        shared.find_out_at_last(last).await;
        writing.join_all().await;
    }

    /// Learns what the driver can do, has watched what that needs, and waits until it is known.
    async fn prepare(self) -> (Shared, EventWriter) {
        let Self { options, client, driver, caches, capacity } = self;
        let (abilities, place) = loop {
            match acquaint(&driver, &options).await {
                Ok(known) => break known,
                Err(error) => {
                    tracing::warn!(%error, "the CSI driver does not say what it can do");
                    sleep(PAUSE).await;
                }
            }
        };
        if abilities.publishes {
            caches.want(&[Watched::Attachments]);
            caches.attachments.synced().await;
        }
        if capacity.is_some() && !abilities.capacity {
            tracing::warn!(
                "no capacity is told: the CSI driver does not have the capability GET_CAPACITY"
            );
        }
        let capacity = capacity.filter(|_| abilities.capacity);
        if (abilities.topology || capacity.is_some()) && place.is_none() {
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
        let shared = Shared {
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
            turns: KeyedLocks::default(),
            capacities,
            events,
            client,
            driver,
            options,
        };
        (shared, writer)
    }
}

/// How events say where they come from.
const COMPONENT: &str = "external-provisioner";

/// What the driver can do, and where it is if it is there for one node alone.
async fn acquaint(
    driver: &Driver,
    options: &ProvisionerOptions,
) -> Result<(Abilities, Option<Segment>), Status> {
    let abilities = Abilities::of(&driver.capabilities().await?, options.topology.enabled);
    let place = match options.node {
        Some(_) => Some(driver.node_info().await?.topology),
        None => None,
    };
    Ok((abilities, place))
}

/// `<ms>-<random>-<driver>[-<node>]`.
fn identity(options: &ProvisionerOptions) -> String {
    let now = Timestamp::now().as_millisecond();
    // Each state has keys of its own, drawn by the standard library.
    let random = RandomState::new().hash_one(()) % 10_000;
    let node = options.node.as_ref().map(|node| format!("-{node}")).unwrap_or_default();
    format!("{now}-{random}-{}{node}", options.driver)
}

impl Shared {
    /// What the driver can do, as it says now.
    async fn abilities(&self) -> Result<Abilities, Failure> {
        let capabilities = self.driver.capabilities().await;
        let places = self.options.topology.enabled;
        capabilities
            .map(|capabilities| Abilities::of(&capabilities, places))
            .map_err(|status| Failure::Away(Box::new(status)))
    }

    /// The same, once the driver is there to say it.
    async fn abilities_at_last(&self) -> Abilities {
        loop {
            if let Ok(abilities) = self.abilities().await {
                return abilities;
            }
            sleep(PAUSE).await;
        }
    }

    async fn tell_capacity(&self, stop: &CancellationToken) {
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
