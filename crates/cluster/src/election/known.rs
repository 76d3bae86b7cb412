//! A replica's knowledge of the Lease: held by itself or by another.

use serde_json::Value;
use tokio::time::Instant;
use tracing::info;

use crate::lease::Lease;

/// A Lease that this replica holds.
pub(super) struct Held {
    pub(super) lease: Lease,
    /// When the renewal was sent: others count from a later moment.
    pub(super) renewed: Instant,
    /// The times in unanswered renewals since.
    pub(super) unanswered: Vec<Value>,
}

impl Held {
    /// Whether a Lease with our own name was last written by this replica.
    pub(super) fn is_written(&self, lease: &Lease) -> bool {
        let time = lease.renew_time();
        time == self.lease.renew_time() || self.unanswered.contains(time)
    }
}

pub(super) enum Renewal {
    Renewed(Held),
    TakenBy(String),
}

/// Another replica's Lease, and when it was last seen to change.
pub(super) struct Rival {
    pub(super) lease: Lease,
    changed: Instant,
}

impl Rival {
    pub(super) fn new(lease: Lease) -> Self {
        info!(leader = lease.holder(), "new leader detected");
        Self { lease, changed: Instant::now() }
    }

    pub(super) fn seen_again(mut self, lease: Lease) -> Self {
        self.observe(lease);
        self
    }

    pub(super) fn observe(&mut self, lease: Lease) {
        if lease.holder() != self.lease.holder() {
            *self = Self::new(lease);
        } else if lease.spec() == self.lease.spec() {
            self.lease = lease;
        } else {
            *self = Self { lease, changed: Instant::now() };
        }
    }

    /// When the Lease expires, unless its holder renews it.
    pub(super) fn expiry(&self) -> Instant {
        self.changed + self.lease.duration()
    }
}
