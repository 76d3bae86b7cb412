//! Publishes the driver's free capacity for the scheduler, by StorageClass and topology segment.
//!
//! Each StorageClass of the driver gets one CSIStorageCapacity for each segment of its nodes, with
//! the result of GetCapacity. Objects are created, updated and deleted one by one.
//!
//! - `item`: a class in a segment, and the items that need an object.
//! - `operation`: the operation for one item.
//! - `owner`: the owner of the objects.

mod item;
mod operation;
mod owner;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use kube::Client;
use serde_json::Value;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_util::sync::CancellationToken;
use wharf_cluster::{
    Change, CsiNode, CsiStorageCapacity, Node, NodeAffinity, Objects, StorageClass, Store, Watch,
};
use wharf_csi::Driver;
use wharf_facts::label;
use wharf_reconcile::{Config, Handle, Reconciler};

pub use self::owner::OwnerOptions;
use self::{
    item::{Item, desired, managed_by},
    operation::CapacityOperation,
};
use super::topology::{Segment, segments_of};
use crate::triggers::Connections;

/// Settings for capacities.
#[derive(Clone, Debug)]
pub struct CapacityOptions {
    /// The namespace of the objects.
    pub namespace: String,
    /// The owner of the objects; `None` for objects without one.
    pub owner: Option<OwnerOptions>,
    /// How often the driver is asked without a trigger.
    pub poll: Duration,
    /// Also publish capacities of classes that bind immediately.
    pub immediate: bool,
    /// Objects that are processed concurrently.
    pub workers: usize,
}

/// State of the capacity controller.
pub(super) struct Capacities {
    options: CapacityOptions,
    driver_name: String,
    managed_by: String,
    client: Client,
    driver: Driver,
    classes: Arc<Store<StorageClass>>,
    csi_nodes: Arc<Store<CsiNode>>,
    nodes: Arc<Store<Node>>,
    /// The segment of a driver that serves one node.
    place: Option<Segment>,
    objects: Objects<CsiStorageCapacity>,
    owner: OnceLock<Option<Value>>,
    desired: Mutex<HashSet<Item>>,
    queue: OnceLock<Handle<Item>>,
}

/// The items that need an object.
pub(super) struct CapacityInputs {
    pub(super) driver_name: String,
    pub(super) driver: Driver,
    pub(super) node: Option<String>,
    pub(super) place: Option<Segment>,
    pub(super) classes: Arc<Store<StorageClass>>,
    pub(super) csi_nodes: Arc<Store<CsiNode>>,
    pub(super) nodes: Arc<Store<Node>>,
}

impl Capacities {
    pub(super) fn new(options: CapacityOptions, client: Client, inputs: CapacityInputs) -> Self {
        Self {
            managed_by: managed_by(inputs.node.as_deref()),
            driver_name: inputs.driver_name,
            driver: inputs.driver,
            place: inputs.place,
            classes: inputs.classes,
            csi_nodes: inputs.csi_nodes,
            nodes: inputs.nodes,
            objects: Objects::new(client.clone(), Store::new(|_| true)),
            owner: OnceLock::new(),
            desired: Mutex::default(),
            queue: OnceLock::new(),
            client,
            options,
        }
    }

    /// Works until `stop`.
    pub(super) async fn run(self: &Arc<Self>, config: Config, stop: &CancellationToken) {
        let mut watching = JoinSet::new();
        let watch = Watch::new(self.client.clone(), Arc::clone(self.objects.store()))
            .within(&self.options.namespace)
            .labelled(label::CAPACITY_DRIVER, &self.driver_name)
            .labelled(label::CAPACITY_MANAGED_BY, &self.managed_by);
        watching.spawn(watch.run(stop.clone()));
        let known = async {
            self.find_owner(config.backoff.first).await;
            self.objects.store().synced().await;
        };
        if stop.run_until_cancelled(known).await.is_some() {
            let config = Config { parallelism: self.options.workers, ..config };
            let operation = CapacityOperation(Arc::clone(self), stop.clone());
            let items = Reconciler::start(config, operation);
            // Set once: each of these runs once.
            let _ = self.queue.set(items.handle());
            stop.run_until_cancelled(self.follow(&items.handle())).await;
            items.drain(Duration::ZERO).await;
        }
        watching.join_all().await;
    }

    /// Queues missing and obsolete CSIStorageCapacity objects, whenever either set changes.
    async fn follow(self: &Arc<Self>, queue: &Handle<Item>) {
        let changed = Arc::new(Notify::new());
        let bell = || {
            let bell = Arc::clone(&changed);
            move || bell.notify_one()
        };
        let _classes = self.classes.subscribe({
            let ring = bell();
            move |_| ring()
        });
        let _csi_nodes = self.csi_nodes.subscribe({
            let ring = bell();
            move |change| {
                if change.old != change.new {
                    ring();
                }
            }
        });
        let _nodes = self.nodes.subscribe({
            let ring = bell();
            move |change: Change<'_, Node>| {
                let labels = |node: Option<&Arc<Node>>| node.map(|it| it.metadata.labels.clone());
                if labels(change.old) != labels(change.new) {
                    ring();
                }
            }
        });
        self.rethink(queue);
        let _objects = self.objects.store().subscribe({
            let (capacities, queue) = (Arc::downgrade(self), queue.clone());
            move |change| {
                if let Some(capacities) = capacities.upgrade() {
                    capacities.object_changed(&change, &queue);
                }
            }
        });
        let poll = self.options.poll;
        let mut polls = interval_at(Instant::now() + poll, poll);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut connections = Connections::of(&self.driver);
        loop {
            tokio::select! {
                () = changed.notified() => {
                    self.rethink(queue);
                    continue;
                }
                _ = polls.tick() => {}
                // A driver that reconnects may report other capacities.
                () = connections.next() => {}
            }
            let all: Vec<Item> = self.desired().iter().cloned().collect();
            all.into_iter().for_each(|item| queue.renew(item));
        }
    }

    /// Queues items that were added or removed.
    fn rethink(&self, queue: &Handle<Item>) {
        let now = desired(self);
        let before = std::mem::replace(&mut *self.desired(), now.clone());
        for item in now.symmetric_difference(&before) {
            queue.renew(item.clone());
        }
    }

    /// Queues an item if others changed its objects: our own writes leave exactly one object for
    /// each item.
    fn object_changed(&self, change: &Change<'_, CsiStorageCapacity>, queue: &Handle<Item>) {
        let Some(item) = change.new.or(change.old).and_then(|object| Item::of(object)) else {
            return;
        };
        let wanted = usize::from(self.desired().contains(&item));
        let store = self.objects.store();
        if store.indexed(CsiStorageCapacity::BY_PLACE, &item.key()).len() != wanted {
            queue.wake(item);
        }
    }

    /// A volume was created or deleted, which changes the capacity of its segment, or else of its
    /// class.
    pub(super) fn refresh(&self, affinity: Option<&NodeAffinity>, class: &str) {
        let Some(queue) = self.queue.get() else { return };
        let places = affinity.map(segments_of);
        let touched = |item: &&Item| match &places {
            Some(places) => places.contains(&item.segment),
            None => item.class == class,
        };
        let touched: Vec<Item> = self.desired().iter().filter(touched).cloned().collect();
        touched.into_iter().for_each(|item| queue.wake(item));
    }

    /// The number of items, of items with an object, and of surplus objects.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let desired = self.desired();
        let store = self.objects.store();
        let is_there = |item: &&Item| store.is_indexed(CsiStorageCapacity::BY_PLACE, &item.key());
        let current = desired.iter().filter(is_there).count();
        (desired.len(), current, store.all().len().saturating_sub(current))
    }

    fn desired(&self) -> MutexGuard<'_, HashSet<Item>> {
        self.desired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
