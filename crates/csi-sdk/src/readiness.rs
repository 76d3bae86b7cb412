//! The state that `Probe` reports.

use std::sync::Arc;

use tokio::sync::watch;

/// A handle with which a driver sets its readiness. Clones share the state.
///
/// A new handle is not ready, so that orchestrators wait for a driver that is still recovering.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<Ready>>);

impl Readiness {
    /// A state that is not ready yet.
    #[must_use]
    pub fn starting() -> Self {
        Self(Arc::new(watch::Sender::new(Ready::Starting)))
    }

    /// Reports the driver as ready from now on.
    pub fn set_ready(&self) {
        self.0.send_replace(Ready::Yes);
    }

    /// Reports the driver as failing from now on, for a reason that needs a person: `Probe` returns
    /// FAILED_PRECONDITION with this text.
    pub fn set_failing(&self, reason: impl Into<String>) {
        self.0.send_replace(Ready::Failing(reason.into()));
    }

    pub(crate) fn state(&self) -> Ready {
        self.0.borrow().clone()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    Starting,
    Yes,
    Failing(String),
}
