mod left_out;
mod own;

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use kube::Client;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use wharf_cluster::{
    CsiNode, InternedStr, Kind, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass,
    Store, VolumeAttachment, VolumeAttributesClass, VolumeGroupSnapshot,
    VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, Watch,
};
use wharf_facts::{finalizer, label};

use self::{
    left_out::relist_claims_left_out,
    own::{is_bound_to, is_volume_of, may_be_claim_of},
};

/// The cluster's objects for the controllers of a process: one cache per kind, and only for the
/// kinds that a controller wants.
///
/// If all controllers serve one driver, objects that concern only other drivers are not kept.
#[derive(Clone, Debug)]
pub struct Caches {
    /// The driver's VolumeAttachments, on all nodes.
    pub attachments: Arc<Store<VolumeAttachment>>,
    /// The driver's volumes, and those of an in-tree plugin that was migrated to it or that have
    /// its finalizer.
    pub volumes: Arc<Store<PersistentVolume>>,
    /// All CSINodes, with this driver's entry if they have one.
    pub csi_nodes: Arc<Store<CsiNode>>,
    /// All Nodes, with their labels.
    pub nodes: Arc<Store<Node>>,
    /// Claims that are bound to the driver's volumes, and all others unless another driver is known
    /// to serve them.
    pub claims: Arc<Store<PersistentVolumeClaim>>,
    /// Pods that may use claims: all but those that have ended.
    pub pods: Arc<Store<Pod>>,
    /// All StorageClasses: a claim may name one of another driver by mistake.
    pub storage_classes: Arc<Store<StorageClass>>,
    /// All VolumeAttributesClasses: a claim may name one of another driver, and the driver is asked
    /// about it.
    pub attributes_classes: Arc<Store<VolumeAttributesClass>>,
    /// All VolumeSnapshots: they do not contain their driver.
    pub snapshots: Arc<Store<VolumeSnapshot>>,
    /// The driver's VolumeSnapshotContents.
    pub contents: Arc<Store<VolumeSnapshotContent>>,
    /// The driver's VolumeSnapshotClasses.
    pub snapshot_classes: Arc<Store<VolumeSnapshotClass>>,
    /// All VolumeGroupSnapshots, which are not served.
    pub group_snapshots: Arc<Store<VolumeGroupSnapshot>>,
    /// The driver's VolumeGroupSnapshotContents, which are not served.
    pub group_contents: Arc<Store<VolumeGroupSnapshotContent>>,
    /// The API path of group snapshots, once a controller wants them.
    group_snapshots_at: Arc<OnceLock<String>>,
    /// Whether objects that concern only other drivers are dropped.
    of_one_driver: bool,
    /// The only node whose snapshots are watched; `None` for all.
    snapshots_of: Option<String>,
    wanted: watch::Sender<Vec<Watched>>,
    /// When a list of all objects was last requested.
    renewed: Arc<Mutex<Instant>>,
}

/// A kind that is watched once a controller wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// VolumeAttachments.
    Attachments,
    /// PersistentVolumes.
    Volumes,
    /// CSINodes.
    CsiNodes,
    /// Nodes.
    Nodes,
    /// PersistentVolumeClaims.
    Claims,
    /// Pods.
    Pods,
    /// StorageClasses.
    StorageClasses,
    /// VolumeAttributesClasses.
    AttributesClasses,
    /// VolumeSnapshots.
    Snapshots,
    /// VolumeSnapshotContents.
    Contents,
    /// VolumeSnapshotClasses.
    SnapshotClasses,
    /// VolumeGroupSnapshots.
    GroupSnapshots,
    /// VolumeGroupSnapshotContents.
    GroupContents,
}

/// The state of the watch of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchState {
    /// Such as `PersistentVolume`.
    pub kind: &'static str,
    /// Whether the list is complete.
    pub synced: bool,
    /// How often the watch has failed since the start.
    pub failures: u64,
}

impl WatchState {
    fn of<K: Kind>(store: &Store<K>) -> Self {
        Self { kind: K::KIND, synced: store.is_synced(), failures: store.failures() }
    }
}

impl Caches {
    /// Empty caches for the objects of `driver`.
    pub fn of(driver: &str) -> Self {
        Self::new(Some(driver))
    }

    /// Empty caches for the objects of all drivers.
    pub fn of_all_drivers() -> Self {
        Self::new(None)
    }

    fn new(driver: Option<&str>) -> Self {
        let finalizer = driver.map(finalizer::attacher);
        let name: Option<Arc<str>> = driver.map(Into::into);
        let is_own = move |named: &str| name.as_deref().is_none_or(|own| own == named);
        let volumes = Store::new({
            let (is_own, all) = (is_own.clone(), driver.is_none());
            move |volume: &mut PersistentVolume| {
                volume.metadata.labels = Default::default();
                all || is_volume_of(volume, &is_own, finalizer.as_deref())
            }
        });
        Self {
            attachments: of_driver(&is_own, |it: &VolumeAttachment| &it.spec.attacher),
            volumes: Arc::clone(&volumes),
            csi_nodes: Store::new({
                let is_own = is_own.clone();
                move |node: &mut CsiNode| {
                    node.metadata.labels = Default::default();
                    node.spec.drivers.retain(|driver| is_own(&driver.name));
                    node.spec.drivers.shrink_to_fit();
                    true
                }
            }),
            nodes: Store::new(|node: &mut Node| {
                node.metadata.annotations = Default::default();
                node.metadata.finalizers = Default::default();
                true
            }),
            claims: Store::new({
                let is_own = is_own.clone();
                move |claim: &mut PersistentVolumeClaim| {
                    claim.metadata.labels = Default::default();
                    may_be_claim_of(claim, &is_own) || is_bound_to(claim, &volumes)
                }
            }),
            pods: Store::new(|pod: &mut Pod| {
                pod.metadata.uid = String::new();
                pod.metadata.finalizers = Default::default();
                pod.metadata.annotations = Default::default();
                pod.metadata.labels = Default::default();
                !pod.status.ended && !pod.spec.claims.is_empty()
            }),
            storage_classes: Store::new(|_| true),
            attributes_classes: Store::new(|_| true),
            snapshots: Store::new(|snapshot: &mut VolumeSnapshot| {
                snapshot.metadata.labels = Default::default();
                true
            }),
            contents: of_driver(&is_own, |it: &VolumeSnapshotContent| &it.spec.driver),
            snapshot_classes: of_driver(&is_own, |it: &VolumeSnapshotClass| &it.driver),
            group_snapshots: Store::new(|snapshot: &mut VolumeGroupSnapshot| {
                snapshot.metadata.labels = Default::default();
                true
            }),
            group_contents: of_driver(&is_own, |it: &VolumeGroupSnapshotContent| &it.spec.driver),
            group_snapshots_at: Arc::default(),
            of_one_driver: driver.is_some(),
            snapshots_of: None,
            wanted: watch::Sender::default(),
            renewed: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Leaves out snapshots that snapshotters of other nodes serve.
    #[must_use]
    pub fn on_node(mut self, node: &str) -> Self {
        self.snapshots_of = Some(node.to_owned());
        self
    }

    /// The watched kinds and the states of their watches.
    pub fn watches(&self) -> Vec<WatchState> {
        let wanted = self.wanted.borrow().clone();
        wanted.into_iter().map(|kind| self.watch_state(kind)).collect()
    }

    fn watch_state(&self, kind: Watched) -> WatchState {
        match kind {
            Watched::Attachments => WatchState::of(&self.attachments),
            Watched::Volumes => WatchState::of(&self.volumes),
            Watched::CsiNodes => WatchState::of(&self.csi_nodes),
            Watched::Nodes => WatchState::of(&self.nodes),
            Watched::Claims => WatchState::of(&self.claims),
            Watched::Pods => WatchState::of(&self.pods),
            Watched::StorageClasses => WatchState::of(&self.storage_classes),
            Watched::AttributesClasses => WatchState::of(&self.attributes_classes),
            Watched::Snapshots => WatchState::of(&self.snapshots),
            Watched::Contents => WatchState::of(&self.contents),
            Watched::SnapshotClasses => WatchState::of(&self.snapshot_classes),
            Watched::GroupSnapshots => WatchState::of(&self.group_snapshots),
            Watched::GroupContents => WatchState::of(&self.group_contents),
        }
    }

    /// Starts watching these kinds, unless they are watched already. Volumes decide which claims
    /// are kept, and are watched with them.
    pub fn want(&self, kinds: &[Watched]) {
        let claims = self.of_one_driver && kinds.contains(&Watched::Claims);
        let needed = if claims { &[Watched::Volumes][..] } else { &[] };
        self.wanted.send_if_modified(|wanted| {
            let before = wanted.len();
            for kind in kinds.iter().chain(needed) {
                if !wanted.contains(kind) {
                    wanted.push(*kind);
                }
            }
            wanted.len() > before
        });
    }

    /// Starts watching a kind of group snapshots at this API path of group and version.
    pub(crate) fn want_group_snapshots(&self, kind: Watched, at: &str) {
        self.group_snapshots_at.get_or_init(|| at.to_owned());
        self.want(&[kind]);
    }

    /// Whether a kind is watched.
    pub(crate) fn is_wanted(&self, kind: Watched) -> bool {
        self.wanted.borrow().contains(&kind)
    }

    /// Waits until a kind is watched.
    pub(crate) async fn wanted(&self, kind: Watched) {
        // `self` holds the sender.
        let _ = self.wanted.subscribe().wait_for(|wanted| wanted.contains(&kind)).await;
    }

    /// Lists all objects again, unless a list was requested within `new`. A new leader has to know
    /// the writes of the leader before.
    pub fn renew(&self, new: Duration) {
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed.elapsed() < new {
            return;
        }
        *renewed = Instant::now();
        self.each(&Renew(None));
    }

    /// Lists those kinds again whose watches have not shown within `time` that they work: after a
    /// network failure a watch may not have noticed that it was cut off.
    pub fn renew_unless_alive(&self, time: Duration) {
        self.each(&Renew(Some(time)));
    }

    fn each(&self, renew: &Renew) {
        renew.store(&self.attachments);
        renew.store(&self.volumes);
        renew.store(&self.csi_nodes);
        renew.store(&self.nodes);
        renew.store(&self.claims);
        renew.store(&self.pods);
        renew.store(&self.storage_classes);
        renew.store(&self.attributes_classes);
        renew.store(&self.snapshots);
        renew.store(&self.contents);
        renew.store(&self.snapshot_classes);
        renew.store(&self.group_snapshots);
        renew.store(&self.group_contents);
    }

    /// Fills the caches, with one watch for each wanted kind, until `stop`.
    pub async fn run(&self, client: &Client, stop: &CancellationToken) {
        let mut wanted = self.wanted.subscribe();
        let mut watches = JoinSet::new();
        stop.run_until_cancelled(async {
            let mut begun = 0;
            loop {
                let kinds = wanted.borrow_and_update()[begun..].to_vec();
                begun += kinds.len();
                for kind in kinds {
                    self.begin(kind, client, stop, &mut watches);
                }
                if wanted.changed().await.is_err() {
                    return;
                }
            }
        })
        .await;
        watches.join_all().await;
    }

    fn begin(
        &self,
        kind: Watched,
        client: &Client,
        stop: &CancellationToken,
        watches: &mut JoinSet<()>,
    ) {
        fn begin<K: Kind>(
            store: &Arc<Store<K>>,
            client: &Client,
            stop: &CancellationToken,
            watches: &mut JoinSet<()>,
        ) {
            watches.spawn(watch(store, client).run(stop.clone()));
        }
        fn watch<K: Kind>(store: &Arc<Store<K>>, client: &Client) -> Watch<K> {
            Watch::new(client.clone(), Arc::clone(store))
        }
        match kind {
            Watched::Attachments => begin(&self.attachments, client, stop, watches),
            Watched::Volumes => begin(&self.volumes, client, stop, watches),
            Watched::CsiNodes => begin(&self.csi_nodes, client, stop, watches),
            Watched::Nodes => begin(&self.nodes, client, stop, watches),
            Watched::Claims if self.of_one_driver => {
                let (claims, volumes) = (watch(&self.claims, client), Arc::clone(&self.volumes));
                let stopped = stop.clone();
                watches.spawn(async move {
                    if stopped.run_until_cancelled(volumes.synced()).await.is_some() {
                        claims.run(stopped).await;
                    }
                });
                let (volumes, claims) = (Arc::clone(&self.volumes), Arc::clone(&self.claims));
                watches.spawn(relist_claims_left_out(
                    volumes,
                    claims,
                    client.clone(),
                    stop.clone(),
                ));
            }
            Watched::Claims => begin(&self.claims, client, stop, watches),
            Watched::Pods => begin(&self.pods, client, stop, watches),
            Watched::StorageClasses => begin(&self.storage_classes, client, stop, watches),
            Watched::AttributesClasses => begin(&self.attributes_classes, client, stop, watches),
            Watched::Snapshots => begin(&self.snapshots, client, stop, watches),
            Watched::Contents => {
                let mut contents = watch(&self.contents, client);
                if let Some(node) = &self.snapshots_of {
                    contents = contents.labelled(label::SNAPSHOT_MANAGED_BY, node);
                }
                watches.spawn(contents.run(stop.clone()));
            }
            Watched::SnapshotClasses => begin(&self.snapshot_classes, client, stop, watches),
            Watched::GroupSnapshots => {
                let groups = self.in_served_version(watch(&self.group_snapshots, client));
                watches.spawn(groups.run(stop.clone()));
            }
            Watched::GroupContents => {
                let contents = self.in_served_version(watch(&self.group_contents, client));
                watches.spawn(contents.run(stop.clone()));
            }
        }
    }

    /// Watches group snapshots in the version that the API serves. Their CustomResourceDefinitions
    /// may be removed at any time.
    fn in_served_version<K: Kind>(&self, watch: Watch<K>) -> Watch<K> {
        match self.group_snapshots_at.get() {
            Some(at) => watch.at(at).optional(),
            None => watch.optional(),
        }
    }
}

/// How stores are renewed: all, or only those whose watch has not worked within a time.
struct Renew(Option<Duration>);

impl Renew {
    fn store<K: Kind>(&self, store: &Store<K>) {
        match self.0 {
            Some(time) => store.renew_unless_alive(time),
            None => store.renew(),
        }
    }
}

/// A store for the objects of a driver.
fn of_driver<K: Kind>(
    is_own: &(impl Fn(&str) -> bool + Clone + Send + Sync + 'static),
    driver: fn(&K) -> &InternedStr,
) -> Arc<Store<K>> {
    let is_own = is_own.clone();
    Store::new(move |object: &mut K| is_own(driver(object)))
}
