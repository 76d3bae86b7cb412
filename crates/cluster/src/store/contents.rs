use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{Key, ObjectSource};
use crate::{Index, Kind, Meta};

/// The objects and their indexes.
pub(super) struct Contents<K> {
    objects: HashMap<Key, Arc<K>>,
    indexes: Vec<HashMap<Box<str>, Keys>>,
    /// The version that the watch has reached.
    reached: u64,
}

impl<K: Kind> Contents<K> {
    pub(super) fn new() -> Self {
        let indexes = K::INDEXES.iter().map(|_| HashMap::new()).collect();
        Self { objects: HashMap::new(), indexes, reached: 0 }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    pub(super) fn entries(&self) -> Vec<(Key, Arc<K>)> {
        self.objects.iter().map(|(key, object)| (Arc::clone(key), Arc::clone(object))).collect()
    }

    pub(super) fn indexed(&self, Index(index): Index, value: &str) -> Vec<Arc<K>> {
        let keys = self.indexes.get(index).and_then(|index| index.get(value));
        let keys = keys.into_iter().flat_map(Keys::iter);
        keys.filter_map(|key| self.objects.get(key)).cloned().collect()
    }

    pub(super) fn is_indexed(&self, Index(index): Index, value: &str) -> bool {
        self.indexes.get(index).is_some_and(|index| index.contains_key(value))
    }

    pub(super) fn reach(&mut self, version: Option<u64>) {
        self.reached = self.reached.max(version.unwrap_or_default());
    }

    /// Records the version of a complete list. Returns the newest version that can be older than
    /// the list: if versions went back, as in an etcd restored from a backup, all cached states are
    /// older.
    pub(super) fn arrive(&mut self, version: Option<u64>) -> Option<u64> {
        let listed = version?;
        let went_back = listed < self.reached;
        self.reached = listed;
        Some(if went_back { u64::MAX } else { listed })
    }

    /// Whether a newer state of an object is known.
    pub(super) fn is_late(&self, key: &str, state: &Meta, source: ObjectSource) -> bool {
        let Some(version) = state.version() else { return false };
        match (self.objects.get(key), source) {
            (Some(known), ObjectSource::List { newest }) => is_newer(&**known, newest),
            (None, ObjectSource::List { .. }) => false,
            (Some(known), _) => known.meta().version().is_some_and(|known| known > version),
            // The watch has passed this state without storing the object: it was deleted.
            (None, ObjectSource::Answer) => version <= self.reached,
            (None, ObjectSource::Watch) => false,
        }
    }

    pub(super) fn insert(&mut self, name: String, object: Arc<K>) -> (Key, Option<Arc<K>>) {
        let removed = self.remove(&name);
        let (key, old) = match removed {
            Some((key, old)) => (key, Some(old)),
            None => (Key::from(name), None),
        };
        for (index, values) in self.indexes.iter_mut().zip(K::INDEXES) {
            values(&object, &mut |value| match index.get_mut(value) {
                Some(keys) => keys.insert(Arc::clone(&key)),
                None => drop(index.insert(value.into(), Keys::One(Arc::clone(&key)))),
            });
        }
        self.objects.insert(Arc::clone(&key), object);
        (key, old)
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<(Key, Arc<K>)> {
        let (key, object) = self.objects.remove_entry(key)?;
        for (index, values) in self.indexes.iter_mut().zip(K::INDEXES) {
            values(&object, &mut |value| {
                if index.get_mut(value).is_some_and(|keys| keys.remove(&key)) {
                    index.remove(value);
                }
            });
        }
        Some((key, object))
    }

    pub(super) fn remove_unshown(
        &mut self,
        shown: &HashSet<String>,
        newest: Option<u64>,
    ) -> Vec<(Key, Arc<K>)> {
        let gone: Vec<Key> = self
            .objects
            .iter()
            .filter(|(key, object)| !shown.contains(&***key) && !is_newer(&***object, newest))
            .map(|(key, _)| Arc::clone(key))
            .collect();
        gone.iter().filter_map(|key| self.remove(key)).collect()
    }
}

fn is_newer<K: Kind>(object: &K, than: Option<u64>) -> bool {
    object.meta().version().zip(than).is_some_and(|(own, than)| own > than)
}

/// The objects under one value of an index. It is one most often, and a set would take more memory
/// than its key.
enum Keys {
    One(Key),
    Many(HashSet<Key>),
}

impl Keys {
    fn iter(&self) -> impl Iterator<Item = &Key> {
        let (one, many) = match self {
            Self::One(key) => (Some(key), None),
            Self::Many(keys) => (None, Some(keys)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    fn insert(&mut self, key: Key) {
        match self {
            Self::One(own) if *own == key => {}
            Self::One(own) => *self = Self::Many(HashSet::from([Arc::clone(own), key])),
            Self::Many(keys) => drop(keys.insert(key)),
        }
    }

    /// Whether it is empty.
    fn remove(&mut self, key: &Key) -> bool {
        match self {
            Self::One(own) => own == key,
            Self::Many(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
        }
    }
}
