//! Triggers that controllers share: changes of objects, reconnections of the driver, and a periodic
//! resync.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};
use wharf_cluster::Change;
use wharf_csi::Driver;
use wharf_uds::LinkState;

/// A subscriber that calls a controller's method on changes of a store, while the controller
/// exists.
pub(crate) fn subscriber<S, W, K>(
    shared: &Arc<S>,
    work: &W,
    changed: fn(&S, &Change<'_, K>, &W),
) -> impl Fn(Change<'_, K>) + Send + Sync + use<S, W, K>
where
    S: Send + Sync + 'static,
    W: Clone + Send + Sync + 'static,
{
    let (shared, work) = (Arc::downgrade(shared), work.clone());
    move |change| {
        if let Some(shared) = shared.upgrade() {
            changed(&shared, &change, &work);
        }
    }
}

/// The safety net under the watches: queues all objects once per period.
pub(crate) struct Resync(Option<Interval>);

impl Resync {
    /// Ticks once in each period; never if it is zero.
    pub(crate) fn every(period: Duration) -> Self {
        Self((!period.is_zero()).then(|| {
            let mut ticks = interval_at(Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        }))
    }

    /// Waits for the next tick.
    pub(crate) async fn next(&mut self) {
        match &mut self.0 {
            Some(ticks) => {
                ticks.tick().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// The driver's successful connections, one after the other.
pub(crate) struct Connections {
    source: ConnectionSource,
    last: Option<u64>,
}

enum ConnectionSource {
    /// Reported by the connection itself.
    Link(watch::Receiver<LinkState>),
    /// Reported by the supervisor, which checks that the driver is still the same.
    Known(watch::Receiver<u64>),
}

impl Connections {
    /// Those after the current one.
    pub(crate) fn of(driver: &Driver) -> Self {
        let mut source = driver
            .known_generation()
            .map_or_else(|| ConnectionSource::Link(driver.link()), ConnectionSource::Known);
        let last = source.generation();
        Self { source, last }
    }

    /// Waits until the driver is connected again: it may have new capabilities.
    pub(crate) async fn next(&mut self) {
        loop {
            let changed = match &mut self.source {
                ConnectionSource::Link(link) => link.changed().await,
                ConnectionSource::Known(known) => known.changed().await,
            };
            if changed.is_err() {
                // The sender is gone, so nothing else will be reported.
                return std::future::pending().await;
            }
            let now = self.source.generation();
            if now.is_some() && now != self.last {
                self.last = now;
                return;
            }
        }
    }
}

impl ConnectionSource {
    fn generation(&mut self) -> Option<u64> {
        match self {
            Self::Link(link) => match *link.borrow_and_update() {
                LinkState::Connected { generation } => Some(generation),
                _ => None,
            },
            Self::Known(known) => Some(*known.borrow_and_update()),
        }
    }
}
