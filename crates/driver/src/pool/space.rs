//! The space account of a pool.
//!
//! A thick volume is promised its whole size, and a snapshot of it is promised as much again, since
//! overwriting shared blocks needs new ones. Blocks of one family (a volume, its snapshots and
//! clones) may be shared, so of the family's promises only the largest member is certainly on disk
//! already.
//!
//! A snapshot made by copying, or one that gets its own blocks, needs no promise once it is made:
//! its blocks and those of its reserve are no longer available, and it is never overwritten.
//!
//! Thin volumes are promised nothing. The sum of their sizes is limited by the thin ratio.

use std::path::Path;

use crate::{error::Error, store::State};

use super::PoolSettings;

/// Space of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Size of the filesystem.
    pub total: u64,
    /// Space available to unprivileged writers.
    pub available: u64,
}

impl Disk {
    /// Bytes that the filesystem may need for metadata of a new image: inodes and extents.
    fn own(&self) -> u64 {
        (self.total / 1000).clamp(1 << 20, 64 << 20)
    }
}

/// Space account of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Space of the disk.
    pub disk: Disk,
    /// Bytes promised to volumes and snapshots.
    pub promised: u64,
    /// Bytes of these promises that are certainly on disk already.
    pub written: u64,
    /// Bytes that are never promised.
    pub floor: u64,
    /// Total size of thin volumes.
    pub thin_promised: u64,
    /// Maximum total size of thin volumes.
    pub thin_limit: u64,
    /// Available bytes below which no thin volume is created or grown.
    pub thin_floor: u64,
}

impl Account {
    /// Computes the account from the promises in `state`.
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

    /// Computes the account of the pool in `root` with default settings.
    ///
    /// # Errors
    /// If the disk cannot be queried.
    pub fn at(root: &Path, state: &State) -> Result<Self, Error> {
        Ok(Self::of(state, super::disk(root)?, &PoolSettings::default()))
    }

    /// Bytes that can still be promised, limited by the size of the disk and by what other files
    /// left of it.
    pub fn capacity(&self) -> u64 {
        let by_size = self.disk.total.saturating_sub(self.promised);
        let by_room =
            self.disk.available.saturating_sub(self.promised.saturating_sub(self.written));
        by_size.min(by_room).saturating_sub(self.floor)
    }

    /// Maximum size of a new thin volume: not larger than the disk.
    pub fn thin_capacity(&self) -> u64 {
        if self.below_floor() || self.below_thin_floor() {
            return 0;
        }
        self.thin_limit.saturating_sub(self.thin_promised).min(self.disk.total)
    }

    /// Whether the disk has too little space left for new or growing thin volumes.
    pub fn below_thin_floor(&self) -> bool {
        self.disk.available < self.thin_floor
    }

    /// Whether the disk has less space left than the floor. Our own promises cannot cause this.
    pub fn below_floor(&self) -> bool {
        self.disk.available < self.floor
    }
}

#[cfg(test)]
mod tests;
