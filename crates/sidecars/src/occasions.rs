//! When objects are looked at: on changes, when the driver has come back, and now and then.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};
use wharf_cluster::Change;
use wharf_csi::Driver;
use wharf_uds::LinkState;

/// A subscriber of a store that tells a controller's method of changes, for as long as there is one to tell.
pub(crate) fn told<S, W, K>(
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

/// The safety net under the watches: all objects are looked at now and then.
pub(crate) struct Resync(Option<Interval>);

impl Resync {
    /// Once in each period; never if that is zero.
    pub(crate) fn every(period: Duration) -> Self {
        Self((!period.is_zero()).then(|| {
            let mut ticks = interval_at(Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        }))
    }

    /// Waits until it is time.
    pub(crate) async fn next(&mut self) {
        match &mut self.0 {
            Some(ticks) => {
                ticks.tick().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// The connections to a driver that it can be asked on, one after the other.
pub(crate) struct Connections {
    told: Told,
    last: Option<u64>,
}

enum Told {
    /// By the connection itself.
    Link(watch::Receiver<LinkState>),
    /// By whoever makes sure that the driver is still the same.
    Known(watch::Receiver<u64>),
}

impl Connections {
    /// Those after the present one.
    pub(crate) fn of(driver: &Driver) -> Self {
        let mut told =
            driver.known_generation().map_or_else(|| Told::Link(driver.link()), Told::Known);
        let last = told.generation();
        Self { told, last }
    }

    /// Waits until the driver is connected anew: it may do what it could not before.
    pub(crate) async fn next(&mut self) {
        loop {
            let changed = match &mut self.told {
                Told::Link(link) => link.changed().await,
                Told::Known(known) => known.changed().await,
            };
            if changed.is_err() {
                // Nobody will tell, and nothing but this waits for it.
                return std::future::pending().await;
            }
            let now = self.told.generation();
            if now.is_some() && now != self.last {
                self.last = now;
                return;
            }
        }
    }
}

impl Told {
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
