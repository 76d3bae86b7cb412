//! One process takes over from another, and no call notices.
//!
//! ```text
//!  old                                           new
//!   │── sockets, hello ──────────────────────────>│  reads its files, reaches the runtime
//!   │<──────────────────────────────────── ready ─│
//!   │── records ─────────────────────────────────>│
//!   │  calls about pods and containers wait       │
//!   │── what is under way, changed records, all ─>│
//!   │<─────────────────────────────────── loaded ─│
//!   │── yours ───────────────────────────────────>│
//!   │<────────────────────────────────── serving ─│  accepts connections
//!   │  closes its sockets, passes calls that      │
//!   │  waited on to the new one, then GOAWAY      │
//!   │── a call has ended, its records ───────────>│
//!   │<──────────────────────────────────── noted ─│
//!   │  answers the call                           │
//! ```
//!
//! Each call about a pod or container is intercepted by one of the two: those that began before the
//! hand-over by the old one, all others by the new one. A call in the new process waits for one in
//! the old process only if both are about the same container, or one of them about the whole pod of
//! the other (`scope`). The old one answers a call only once the new one has its records, so that
//! the call that follows finds them. Calls that waited reach the new one in the order in which they
//! came, and before clients are asked to connect to it.
//!
//! The old process passes last good versions of hook server files before the changed records: the
//! state folder may lack them.
//!
//! Until it has heard `serving`, the old process goes on as before if the new one dies, fails or
//! takes too long. It says so before it closes the channel, and kills a process that it cannot
//! tell: the end of the channel means its death. If the old process dies, the new one serves at
//! once, with what the old one sent and what the runtime reports.

mod calls;
mod channel;
mod message;
mod new;
mod old;
mod predecessor_calls;
mod scope;
#[cfg(test)]
mod tests;

use std::{io, time::Duration};

pub(crate) use self::{
    calls::{Admission, Calls},
    predecessor_calls::PredecessorCalls,
    scope::Scope,
};
pub use self::{
    message::{Hello, PassedFile, PassedSocket},
    new::{Finishing, Predecessor},
    old::{Followed, HandOver},
};

/// Why one process did not take over from another.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandOverError {
    /// It has ended.
    #[error("the other process ended before it was done; its log says why")]
    Ended,
    /// It does not answer.
    #[error("the other process did not {step} within {limit:?}; its log may say why")]
    Silent {
        /// What it should have done.
        step: &'static str,
        /// How long it had.
        limit: Duration,
    },
    /// It says that it cannot.
    #[error("the other process cannot take over: {0}")]
    Failed(String),
    /// The old process has called it off.
    #[error("the running proxy called the hand-over off: {0}")]
    Aborted(String),
    /// A hook server file of the running proxy makes no sense to this one.
    #[error(
        "the last good version of hook server file {file} is in force, and refused by this release: {why}"
    )]
    Version {
        /// The file's name.
        file: String,
        /// Why it is refused.
        why: String,
    },
    /// The old process is busy with its files.
    #[error(
        "the folder of hook servers or the state folder hangs: the running proxy cannot leave it"
    )]
    StateFolder,
    /// The old process is told to stop.
    #[error("the running proxy is told to stop")]
    Stopped,
    /// It speaks another version.
    #[error(
        "the other process speaks version {0} of the hand-over, and this one version \
         {expected}: restart the proxy instead",
        expected = message::PROTOCOL
    )]
    Protocol(u32),
    /// It said something else than what comes next.
    #[error("the other process does not follow the protocol of the hand-over")]
    Confused,
    /// The channel is broken.
    #[error("the channel to the other process is broken: {0}")]
    Channel(io::Error),
}

impl From<io::Error> for HandOverError {
    /// An end that is closed is one of a process that has ended, whatever was being done.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Ended,
            _ => Self::Channel(error),
        }
    }
}
