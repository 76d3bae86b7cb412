use std::collections::{BTreeMap, HashMap};

/// A map that keeps the most recently used entries, up to a number.
pub(super) struct Lru<V> {
    capacity: usize,
    entries: HashMap<u64, (u64, V)>,
    /// Keys in the order of use.
    uses: BTreeMap<u64, u64>,
    last: u64,
}

impl<V> Lru<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), uses: BTreeMap::new(), last: 0 }
    }

    /// The entry of a key, created by `make` if missing. It counts as used now.
    pub(super) fn entry(&mut self, key: u64, make: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(&key)
            && self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.last += 1;
        let (used, value) = self.entries.entry(key).or_insert_with(|| (self.last, make()));
        self.uses.remove(used);
        *used = self.last;
        self.uses.insert(self.last, key);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let mut lru = Lru::new(2);
        for key in [1, 2, 1, 3] {
            lru.entry(key, || key);
        }
        let kept = |key| lru.entries.contains_key(&key);
        assert_eq!([kept(1), kept(2), kept(3)], [true, false, true]);
        assert_eq!(lru.uses.len(), lru.entries.len());
    }
}
