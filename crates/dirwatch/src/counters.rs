//! How much a watch has done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much a watch has done since its start; a clone goes on counting.
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
    /// Scans of everything, the first included.
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
