//! Shared by scripted servers: the treatment of calls, and waiting for recorded calls.

use std::time::Duration;

use tokio::sync::watch;
use tonic::Status;

/// How long a test waits for anything before it fails.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Treatment of a call by a scripted server.
#[derive(Clone, Debug, Default)]
pub enum Answer {
    /// Answers at once.
    #[default]
    AtOnce,
    /// Answers after a delay.
    After(Duration),
    /// Never answers.
    Never,
    /// Answers with an error.
    Error(Status),
}

impl Answer {
    /// Waits or fails as the script says.
    pub(crate) async fn given(self) -> Result<(), Status> {
        match self {
            Self::AtOnce => Ok(()),
            Self::After(delay) => {
                tokio::time::sleep(delay).await;
                Ok(())
            }
            Self::Never => std::future::pending().await,
            Self::Error(status) => Err(status),
        }
    }
}

/// Waits until the record of a server satisfies `wanted`, and returns it.
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
