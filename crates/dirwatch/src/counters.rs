//! Counters of a watch.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Counters of a watch since its start. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    rescans: AtomicU64,
    events: AtomicU64,
    overflows: AtomicU64,
}

impl Counters {
    /// Scans of the whole tree, the first included.
    pub fn rescans(&self) -> u64 {
        self.counts.rescans.load(Ordering::Relaxed)
    }

    /// Events read from inotify.
    pub fn events(&self) -> u64 {
        self.counts.events.load(Ordering::Relaxed)
    }

    /// Times that the kernel dropped events because its queue was full.
    pub fn overflows(&self) -> u64 {
        self.counts.overflows.load(Ordering::Relaxed)
    }

    pub(crate) fn count_rescan(&self) {
        self.counts.rescans.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_event(&self) {
        self.counts.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_overflow(&self) {
        self.counts.overflows.fetch_add(1, Ordering::Relaxed);
    }
}
