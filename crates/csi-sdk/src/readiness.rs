//! What `Probe` answers.

use std::sync::Arc;

use tokio::sync::watch;

/// A handle through which a driver says whether it is ready. Clones share it.
///
/// A new one is not ready, so that orchestrators wait for a driver that still recovers.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<Ready>>);

impl Readiness {
    /// Not ready yet.
    #[must_use]
    pub fn starting() -> Self {
        Self(Arc::new(watch::Sender::new(Ready::Starting)))
    }

    /// From now on the driver can work.
    pub fn set_ready(&self) {
        self.0.send_replace(Ready::Yes);
    }

    /// From now on the driver cannot work, for a reason that a person has to see to: `Probe` fails with
    /// FAILED_PRECONDITION and this text.
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
