//! What all records of a pool are owed together, kept with every change: nobody adds up thousands of volumes for each call.

use std::collections::HashMap;

/// What a record counts for in its pool's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed<'a> {
    /// Images of one family may share blocks.
    pub family: &'a str,
    /// Bytes that the pool owes it.
    pub promised: u64,
    /// Bytes of these that are surely on disk, though perhaps shared with the rest of the family.
    pub present: u64,
    /// Its size, if it is a thin volume.
    pub thin: u64,
}

/// Sums over all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    promised: u128,
    written: u128,
    thin: u128,
    /// For each family the `present` bytes of its members that have any.
    families: HashMap<String, Vec<u64>>,
}

impl Totals {
    pub(super) fn add(&mut self, owed: Owed<'_>) {
        self.promised += u128::from(owed.promised);
        self.thin += u128::from(owed.thin);
        if owed.present > 0 {
            let before = self.largest(owed.family);
            match self.families.get_mut(owed.family) {
                Some(members) => members.push(owed.present),
                None => drop(self.families.insert(owed.family.to_owned(), vec![owed.present])),
            }
            self.written += u128::from(self.largest(owed.family) - before);
        }
    }

    pub(super) fn subtract(&mut self, owed: Owed<'_>) {
        self.promised -= u128::from(owed.promised);
        self.thin -= u128::from(owed.thin);
        let before = self.largest(owed.family);
        if let Some(members) = self.families.get_mut(owed.family)
            && let Some(at) = members.iter().position(|present| *present == owed.present)
        {
            members.swap_remove(at);
            if members.is_empty() {
                self.families.remove(owed.family);
            }
            self.written -= u128::from(before - self.largest(owed.family));
        }
    }

    /// Bytes owed to volumes and snapshots.
    pub(crate) fn promised(&self) -> u64 {
        saturated(self.promised)
    }

    /// Bytes that are surely on disk: a family may share all blocks of its largest member.
    pub(crate) fn written(&self) -> u64 {
        saturated(self.written)
    }

    /// Bytes of all thin volumes.
    pub(crate) fn thin(&self) -> u64 {
        saturated(self.thin)
    }

    fn largest(&self, family: &str) -> u64 {
        self.families.get(family).into_iter().flatten().copied().max().unwrap_or_default()
    }
}

fn saturated(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
