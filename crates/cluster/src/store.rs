//! Objects of one kind, as last seen.

mod contents;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use self::contents::Contents;
use crate::{Index, Kind};

/// Key of an object: its name, or `namespace/name`.
pub type Key = Arc<str>;

/// What has changed. An object that was kept and is of interest to nobody any more counts as gone.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// Whose change it is.
    pub key: &'a Key,
    /// The object before, if it was there.
    pub old: Option<&'a Arc<K>>,
    /// The object now, if it is still there.
    pub new: Option<&'a Arc<K>>,
}

/// A cache of the objects of one kind, shared by all controllers of a process.
///
/// A [`Watch`](crate::Watch) fills it. Answers to our own writes go in as well ([`Store::observe`]), so that whoever
/// wrote reads its own write; since versions of an object are ordered, neither source ever turns the other back.
pub struct Store<K> {
    keep: Box<Keep<K>>,
    contents: RwLock<Contents<K>>,
    /// Held while a change is made and told, so that all subscribers see changes in one order.
    subscribers: Mutex<Subscribers<K>>,
    lists: watch::Sender<Lists>,
    /// When the watch was last asked to list, connected, or heard of a change.
    alive: Mutex<Option<Instant>>,
    /// How often the watch has failed.
    failures: AtomicU64,
}

/// Lists that were asked for, and which of them has come. They are numbered.
#[derive(Clone, Copy, Default)]
struct Lists {
    asked: u64,
    complete: Option<u64>,
}

impl Lists {
    fn is_complete(&self) -> bool {
        self.complete == Some(self.asked)
    }
}

type Keep<K> = dyn Fn(&mut K) -> bool + Send + Sync;
type Callback<K> = dyn Fn(Change<'_, K>) + Send + Sync;

struct Subscribers<K> {
    last: u64,
    callbacks: Vec<(u64, Box<Callback<K>>)>,
}

/// Ends when it is dropped.
#[must_use = "a subscription ends when it is dropped"]
pub struct Subscription<K: Kind> {
    store: Weak<Store<K>>,
    number: u64,
}

impl<K: Kind> Store<K> {
    /// An empty store. Objects that `keep` declines never enter; it may trim those that it accepts.
    pub fn new(keep: impl Fn(&mut K) -> bool + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            keep: Box::new(keep),
            contents: RwLock::new(Contents::new()),
            subscribers: Mutex::new(Subscribers { last: 0, callbacks: Vec::new() }),
            lists: watch::Sender::default(),
            alive: Mutex::default(),
            failures: AtomicU64::default(),
        })
    }

    /// The object, as last seen.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.read().get(key).cloned()
    }

    /// The objects that an index finds under a value.
    pub fn indexed(&self, index: Index, value: &str) -> Vec<Arc<K>> {
        self.read().indexed(index, value)
    }

    /// Whether an index finds anything under a value.
    pub fn is_indexed(&self, index: Index, value: &str) -> bool {
        self.read().is_indexed(index, value)
    }

    /// All objects, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().all().cloned().collect()
    }

    /// Waits until all objects that exist have been seen once, and again since they were asked for again.
    pub async fn synced(&self) {
        // The sender lives as long as this borrow.
        let _ = self.lists.subscribe().wait_for(Lists::is_complete).await;
    }

    /// Whether all objects that exist have been seen, and again since they were asked for again.
    pub fn is_synced(&self) -> bool {
        self.lists.borrow().is_complete()
    }

    /// How often the watch has failed since the start.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Has all objects listed anew: a watch that broke unnoticed may have missed what others did meanwhile. What is here
    /// stays until then.
    pub fn renew(&self) {
        self.note_alive();
        self.lists.send_modify(|lists| lists.asked += 1);
    }

    /// As [`Store::renew`], unless the watch has shown within `time` that it works.
    pub fn renew_unless_alive(&self, time: Duration) {
        let alive = *self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.is_none_or(|when| when.elapsed() >= time) {
            self.renew();
        }
    }

    /// Notes that the watch works, or has just been told to begin.
    pub(crate) fn note_alive(&self) {
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// The list that is asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.lists.borrow().asked
    }

    /// Waits until another list than this is asked for.
    pub(crate) async fn asked_beyond(&self, list: u64) {
        let _ = self.lists.subscribe().wait_for(|lists| lists.asked > list).await;
    }

    /// Calls back for each change from now on, beginning with all that is there.
    ///
    /// The callback runs while the change is made: it wakes whoever has work, and neither waits nor subscribes. It may
    /// read the store.
    pub fn subscribe(
        self: &Arc<Self>,
        callback: impl Fn(Change<'_, K>) + Send + Sync + 'static,
    ) -> Subscription<K> {
        let mut subscribers = self.subscribers();
        let here: Vec<(Key, Arc<K>)> = self.read().entries();
        for (key, object) in &here {
            callback(Change { key, old: None, new: Some(object) });
        }
        subscribers.last += 1;
        let number = subscribers.last;
        subscribers.callbacks.push((number, Box::new(callback)));
        Subscription { store: Arc::downgrade(self), number }
    }

    /// Takes in an object that the API returned for a write or a read of our own.
    pub fn observe(&self, object: K) {
        self.put(object, Source::Answer);
    }

    /// Takes in an object that a list or a watch showed. Gives it back where a newer state of it is known.
    pub(crate) fn show(&self, object: K) -> Option<K> {
        self.put(object, Source::Watch)
    }

    /// Takes out an object that a watch showed as deleted.
    pub(crate) fn delete(&self, object: &K) {
        let key = object.meta().key();
        let subscribers = self.subscribers();
        let old = {
            let mut contents = self.write();
            contents.reach(object.meta().version());
            contents.remove(&key)
        };
        if let Some((key, old)) = old {
            subscribers.tell(&Change { key: &key, old: Some(&old), new: None });
        }
    }

    /// A list is complete: what it did not show is gone, and what it showed is so, unless what is known is newer than the
    /// list.
    pub(crate) fn settle(&self, list: u64, listing: Listing<K>, version: Option<u64>) {
        let Listing { shown, outdated } = listing;
        let subscribers = self.subscribers();
        let (gone, newest) = {
            let mut contents = self.write();
            let newest = contents.arrive(version);
            (contents.remove_unshown(&shown, newest), newest)
        };
        for (key, old) in &gone {
            subscribers.tell(&Change { key, old: Some(old), new: None });
        }
        drop(subscribers);
        for object in outdated.into_values() {
            self.put(object, Source::List { newest });
        }
        let objects = self.read().all().count();
        tracing::info!(kind = K::KIND, objects, "cache synced");
        self.lists.send_modify(|lists| lists.complete = Some(list));
    }

    /// The watch has come so far without a change.
    pub(crate) fn reach(&self, version: Option<u64>) {
        self.write().reach(version);
    }

    fn put(&self, mut object: K, source: Source) -> Option<K> {
        let kept = (self.keep)(&mut object);
        let name = object.meta().key();
        let subscribers = self.subscribers();
        let (key, old, new) = {
            let mut contents = self.write();
            let late = contents.is_late(&name, object.meta(), source);
            if source == Source::Watch {
                contents.reach(object.meta().version());
            }
            if late {
                return Some(object);
            }
            if kept {
                let new = Arc::new(object);
                let (key, old) = contents.insert(name, Arc::clone(&new));
                (key, old, Some(new))
            } else {
                let (key, old) = contents.remove(&name)?;
                (key, Some(old), None)
            }
        };
        subscribers.tell(&Change { key: &key, old: old.as_ref(), new: new.as_ref() });
        None
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents<K>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Contents<K>> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Store<K> {
    fn subscribers(&self) -> MutexGuard<'_, Subscribers<K>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an object comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// From the stream of all changes, in their order.
    Watch,
    /// From an answer, which may be older or newer than the stream is.
    Answer,
    /// From a complete list, which knows better than what was seen before it: an etcd that was restored from a backup has
    /// earlier states of its objects at a later version. States up to `newest` are older than the list.
    List { newest: Option<u64> },
}

/// What a list has shown so far.
pub(crate) struct Listing<K> {
    /// Keys of objects.
    shown: HashSet<String>,
    /// Objects of which newer states are known. Whether those are right, only the version of the list can tell.
    outdated: HashMap<String, K>,
}

impl<K: Kind> Listing<K> {
    pub(crate) fn new() -> Self {
        Self { shown: HashSet::new(), outdated: HashMap::new() }
    }

    /// The list shows an object, which `store` takes in.
    pub(crate) fn add(&mut self, object: K, store: &Store<K>) {
        let key = object.meta().key();
        match store.show(object) {
            Some(outdated) => self.outdated.insert(key.clone(), outdated),
            None => self.outdated.remove(&key),
        };
        self.shown.insert(key);
    }

    /// The list shows an object that cannot be read: it is there, in whatever state.
    pub(crate) fn add_unreadable(&mut self, key: String) {
        self.shown.insert(key);
    }

    /// An object was deleted while the list came in.
    pub(crate) fn remove(&mut self, object: &K) {
        let key = object.meta().key();
        self.outdated.remove(&key);
        self.shown.remove(&key);
    }
}

impl<K> Subscribers<K> {
    fn tell(&self, change: &Change<'_, K>) {
        for (_, callback) in &self.callbacks {
            callback(Change { key: change.key, old: change.old, new: change.new });
        }
    }
}

impl<K: Kind> Drop for Subscription<K> {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.subscribers().callbacks.retain(|(number, _)| *number != self.number);
        }
    }
}

impl<K: Kind> fmt::Debug for Store<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").field("kind", &K::KIND).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
