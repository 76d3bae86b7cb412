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

/// The connections to a driver, one after the other.
pub(crate) struct Connections {
    link: watch::Receiver<LinkState>,
    last: Option<u64>,
}

impl Connections {
    /// Those after the present one.
    pub(crate) fn of(driver: &Driver) -> Self {
        let mut link = driver.link();
        let last = generation(&link.borrow_and_update());
        Self { link, last }
    }

    /// Waits until the driver is connected anew: it may do what it could not before.
    pub(crate) async fn next(&mut self) {
        loop {
            if self.link.changed().await.is_err() {
                // Nobody will tell, and nothing but this waits for it.
                return std::future::pending().await;
            }
            let now = generation(&self.link.borrow_and_update());
            if now.is_some() && now != self.last {
                self.last = now;
                return;
            }
        }
    }
}

fn generation(state: &LinkState) -> Option<u64> {
    match *state {
        LinkState::Connected { generation } => Some(generation),
        _ => None,
    }
}
