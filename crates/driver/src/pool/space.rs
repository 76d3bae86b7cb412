//! What a pool can still promise.
//!
//! A thick volume is owed its whole size, whatever it has written, and a snapshot of it is owed as much again: overwriting
//! shared blocks takes new ones. Blocks of one family (a volume, its snapshots and clones) may be shared, so of all that a
//! family is owed, only its largest member is surely on the disk already.
//!
//! A snapshot that is a copy, or that gets blocks of its own, is owed nothing more once it is made: its blocks and those of
//! its reserve are gone from what is available, and nothing of it is ever overwritten.
//!
//! Thin volumes are owed nothing. The sum of their sizes is bound by the thin ratio.

use std::path::Path;

use crate::error::Error;
use crate::store::State;

use super::PoolSettings;

/// The disk's own figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Size of the filesystem.
    pub total: u64,
    /// What an unprivileged writer can still get.
    pub available: u64,
}

impl Disk {
    /// Bytes that the filesystem may need to record a new image: inodes, and where the pieces of it are.
    fn own(&self) -> u64 {
        (self.total / 1000).clamp(1 << 20, 64 << 20)
    }
}

/// A pool's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The disk's own figures.
    pub disk: Disk,
    /// Bytes owed to volumes and snapshots.
    pub promised: u64,
    /// Bytes of these that are surely on disk already.
    pub written: u64,
    /// Bytes that are never promised.
    pub floor: u64,
    /// Bytes of all thin volumes.
    pub thin_promised: u64,
    /// Bytes that thin volumes may have.
    pub thin_limit: u64,
    /// Available bytes below which nothing thin is created or grown.
    pub thin_floor: u64,
}

impl Account {
    /// Adds up what `state` promises.
    pub fn of(state: &State, disk: Disk, settings: &PoolSettings) -> Self {
        let totals = state.totals();
        Self {
            disk,
            promised: totals.promised(),
            written: totals.written(),
            floor: match settings.floor {
                Some(floor) => floor.max(disk.own()),
                None => (disk.total / 100).clamp(64 << 20, 10 << 30),
            },
            thin_promised: totals.thin(),
            thin_limit: settings.thin_ratio.of(disk.total),
            thin_floor: settings.thin_floor.of(disk.total),
        }
    }

    /// The account of the pool in `root`, with the usual settings.
    ///
    /// # Errors
    /// When the disk does not say.
    pub fn at(root: &Path, state: &State) -> Result<Self, Error> {
        Ok(Self::of(state, super::disk(root)?, &PoolSettings::default()))
    }

    /// Bytes that can still be promised: bound by the size of the disk and by what others left of it.
    pub fn capacity(&self) -> u64 {
        let by_size = self.disk.total.saturating_sub(self.promised);
        let by_room =
            self.disk.available.saturating_sub(self.promised.saturating_sub(self.written));
        by_size.min(by_room).saturating_sub(self.floor)
    }

    /// The largest thin volume that can still be created: no volume is larger than the disk.
    pub fn thin_capacity(&self) -> u64 {
        if self.below_floor() || self.below_thin_floor() {
            return 0;
        }
        self.thin_limit.saturating_sub(self.thin_promised).min(self.disk.total)
    }

    /// Whether the disk has so little left that nothing thin is created or grown.
    pub fn below_thin_floor(&self) -> bool {
        self.disk.available < self.thin_floor
    }

    /// Whether the disk has less than the floor left, which no promise of ours should bring about.
    pub fn below_floor(&self) -> bool {
        self.disk.available < self.floor
    }
}

#[cfg(test)]
mod tests;
