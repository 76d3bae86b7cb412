//! Kubernetes plumbing: a client, what its errors mean, and core events.
//!
//! Objects that wharf writes are read, edited and written as whole JSON documents: a trimmed struct that is written back
//! would lose the fields that it does not know.

mod client;
mod events;
mod failure;

pub use client::{ConnectError, connect};
pub use events::{EventRecorder, EventType};
pub use failure::{ApiFailure, REQUEST_TIMEOUT, bounded};
