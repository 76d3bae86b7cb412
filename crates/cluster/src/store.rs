//! A cache of the objects of one kind.

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

/// A change of a stored object. An object that the store's filter rejects from now on counts as
/// deleted.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// The object's key.
    pub key: &'a Key,
    /// The object before, if it was stored.
    pub old: Option<&'a Arc<K>>,
    /// The object now, if it still exists.
    pub new: Option<&'a Arc<K>>,
}

/// A cache of the objects of one kind, shared by all controllers of a process.
///
/// A [`Watch`](crate::Watch) fills it. Answers to our own writes go in as well
/// ([`Store::observe`]), so that a writer reads its own writes. Versions of an object are ordered:
/// neither source replaces a newer state by an older one.
pub struct Store<K> {
    keep: Box<Keep<K>>,
    contents: RwLock<Contents<K>>,
    /// Held while a change is made and subscribers are called, so that all of them see one order.
    subscribers: Mutex<Subscribers<K>>,
    lists: watch::Sender<Lists>,
    /// When the watch last began a list, connected, or received a change.
    alive: Mutex<Option<Instant>>,
    /// How often the watch has failed.
    failures: AtomicU64,
}

/// Numbers of the last list that was requested and of the last one that is complete.
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

/// Unsubscribes when it is dropped.
#[must_use = "a subscription ends when it is dropped"]
pub struct Subscription<K: Kind> {
    store: Weak<Store<K>>,
    number: u64,
}

impl<K: Kind> Store<K> {
    /// An empty store. `keep` rejects objects, and may trim those that it accepts.
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

    /// The object as last seen.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.read().get(key).cloned()
    }

    /// The objects under a value of an index.
    pub fn indexed(&self, index: Index, value: &str) -> Vec<Arc<K>> {
        self.read().indexed(index, value)
    }

    /// Whether an index has objects under a value.
    pub fn is_indexed(&self, index: Index, value: &str) -> bool {
        self.read().is_indexed(index, value)
    }

    /// All objects, unordered.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().all().cloned().collect()
    }

    /// Waits until the requested list is complete.
    pub async fn synced(&self) {
        // The sender lives as long as this borrow.
        let _ = self.lists.subscribe().wait_for(Lists::is_complete).await;
    }

    /// Whether the requested list is complete.
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

    /// Requests a new list: a watch that broke unnoticed may have missed changes. Stored objects
    /// stay meanwhile.
    pub fn renew(&self) {
        self.note_alive();
        self.lists.send_modify(|lists| lists.asked += 1);
    }

    /// Like [`Store::renew`], unless the watch has shown within `time` that it works.
    pub fn renew_unless_alive(&self, time: Duration) {
        let alive = *self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.is_none_or(|when| when.elapsed() >= time) {
            self.renew();
        }
    }

    /// Records that the watch works, or begins a list.
    pub(crate) fn note_alive(&self) {
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// The number of the requested list.
    pub(crate) fn asked(&self) -> u64 {
        self.lists.borrow().asked
    }

    /// Waits until a list after `number` is requested.
    pub(crate) async fn asked_beyond(&self, list: u64) {
        let _ = self.lists.subscribe().wait_for(|lists| lists.asked > list).await;
    }

    /// Calls back for each change from now on, after each object that is stored already.
    ///
    /// The callback runs under a lock: it wakes operations, and must not wait or subscribe. It may
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

    /// Stores an object that the API returned for our own write or read.
    pub fn observe(&self, object: K) {
        self.put(object, ObjectSource::Answer);
    }

    /// Stores an object from a list or a watch. Returns it if a newer state is stored.
    pub(crate) fn show(&self, object: K) -> Option<K> {
        self.put(object, ObjectSource::Watch)
    }

    /// Removes an object that a watch reported as deleted.
    pub(crate) fn delete(&self, object: &K) {
        let key = object.meta().key();
        let subscribers = self.subscribers();
        let old = {
            let mut contents = self.write();
            contents.reach(object.meta().version());
            contents.remove(&key)
        };
        if let Some((key, old)) = old {
            subscribers.notify(&Change { key: &key, old: Some(&old), new: None });
        }
    }

    /// Completes a list: drops unlisted objects, and replaces cached versions unless they are newer
    /// than the list.
    pub(crate) fn settle(&self, list: u64, listing: Listing<K>, version: Option<u64>) {
        let Listing { shown, outdated } = listing;
        let subscribers = self.subscribers();
        let (gone, newest) = {
            let mut contents = self.write();
            let newest = contents.arrive(version);
            (contents.remove_unshown(&shown, newest), newest)
        };
        for (key, old) in &gone {
            subscribers.notify(&Change { key, old: Some(old), new: None });
        }
        drop(subscribers);
        for object in outdated.into_values() {
            self.put(object, ObjectSource::List { newest });
        }
        let objects = self.read().all().count();
        tracing::info!(kind = K::KIND, objects, "cache synced");
        self.lists.send_modify(|lists| lists.complete = Some(list));
    }

    /// Advances the watch's version without a change.
    pub(crate) fn reach(&self, version: Option<u64>) {
        self.write().reach(version);
    }

    fn put(&self, mut object: K, source: ObjectSource) -> Option<K> {
        let kept = (self.keep)(&mut object);
        let name = object.meta().key();
        let subscribers = self.subscribers();
        let (key, old, new) = {
            let mut contents = self.write();
            let late = contents.is_late(&name, object.meta(), source);
            if source == ObjectSource::Watch {
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
        subscribers.notify(&Change { key: &key, old: old.as_ref(), new: new.as_ref() });
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

/// The source of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObjectSource {
    /// From the watch, which reports all changes in order.
    Watch,
    /// From an answer, which may be older or newer than the watch.
    Answer,
    /// From a complete list. It overrules earlier states: an etcd restored from a backup has
    /// earlier states of objects at a later version. States up to `newest` are older than the list.
    List { newest: Option<u64> },
}

/// The content of a list so far.
pub(crate) struct Listing<K> {
    /// Keys of listed objects.
    shown: HashSet<String>,
    /// Listed objects with newer cached states. Only the version of the complete list tells which
    /// are right.
    outdated: HashMap<String, K>,
}

impl<K: Kind> Listing<K> {
    pub(crate) fn new() -> Self {
        Self { shown: HashSet::new(), outdated: HashMap::new() }
    }

    /// Adds an object to the list and stores it.
    pub(crate) fn add(&mut self, object: K, store: &Store<K>) {
        let key = object.meta().key();
        match store.show(object) {
            Some(outdated) => self.outdated.insert(key.clone(), outdated),
            None => self.outdated.remove(&key),
        };
        self.shown.insert(key);
    }

    /// Adds an object that cannot be read: it exists, in an unknown state.
    pub(crate) fn add_unreadable(&mut self, key: String) {
        self.shown.insert(key);
    }

    /// Removes an object that was deleted while the list came in.
    pub(crate) fn remove(&mut self, object: &K) {
        let key = object.meta().key();
        self.outdated.remove(&key);
        self.shown.remove(&key);
    }
}

impl<K> Subscribers<K> {
    fn notify(&self, change: &Change<'_, K>) {
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
mod tests;
