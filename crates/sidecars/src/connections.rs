//! When a driver has come back.

use tokio::sync::watch;
use wharf_csi::Driver;
use wharf_uds::LinkState;

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
