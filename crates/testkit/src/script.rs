//! What scripted servers have in common: how a call is answered, and waiting for what they saw.

use std::time::Duration;

use tokio::sync::watch;
use tonic::Status;

/// How long a test waits for anything before it fails.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How a scripted server answers a call.
#[derive(Clone, Debug, Default)]
pub enum Answer {
    /// As it should, at once.
    #[default]
    AtOnce,
    /// As it should, but late.
    After(Duration),
    /// Never.
    Never,
    /// With an error.
    Error(Status),
}

impl Answer {
    /// Waits or fails as the script says.
    pub(crate) async fn given(self) -> Result<(), Status> {
        match self {
            Answer::AtOnce => Ok(()),
            Answer::After(delay) => {
                tokio::time::sleep(delay).await;
                Ok(())
            }
            Answer::Never => std::future::pending().await,
            Answer::Error(status) => Err(status),
        }
    }
}

/// Waits until what a server saw is as `wanted`, and returns it.
pub(crate) async fn seen<T: Clone + std::fmt::Debug>(
    record: &watch::Sender<T>,
    wanted: impl FnMut(&T) -> bool,
) -> T {
    let mut changes = record.subscribe();
    match tokio::time::timeout(DEADLINE, changes.wait_for(wanted)).await {
        Ok(Ok(record)) => record.clone(),
        Ok(Err(_)) => unreachable!("the sender is borrowed"),
        Err(_) => panic!("not seen within {DEADLINE:?}, but {:?}", *record.borrow()),
    }
}
