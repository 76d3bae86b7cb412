//! Sums of a pool's account, updated with every change, since adding up thousands of volumes per
//! call is too slow.

use std::collections::HashMap;

/// Part of a record in its pool's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed<'a> {
    /// Family of images that may share blocks.
    pub family: &'a str,
    /// Bytes that the pool promises.
    pub promised: u64,
    /// Bytes of these that are certainly on disk, perhaps shared within the family.
    pub present: u64,
    /// Size of a thin volume; otherwise 0.
    pub thin: u64,
}

/// Sums over all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    promised: u128,
    written: u128,
    thin: u128,
    /// The `present` bytes of each family's members, without zeros.
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

    /// Bytes promised to volumes and snapshots.
    pub(crate) fn promised(&self) -> u64 {
        saturated(self.promised)
    }

    /// Bytes that are certainly on disk: a family may share all blocks of its largest member.
    pub(crate) fn written(&self) -> u64 {
        saturated(self.written)
    }

    /// Total size of thin volumes.
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
