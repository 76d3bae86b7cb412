//! Kubernetes plumbing: a client, shared watches and caches, guarded writes, leader election,
//! classes of API errors, and core events.
//!
//! Each kind is watched once per process, by a [`Watch`] that keeps a [`Store`] of trimmed objects
//! of this [`Kind`]; all controllers read from there. Objects that wharf writes are patched, or
//! read, edited and written as whole JSON documents ([`Objects`]): a trimmed struct that is written
//! back would lose the fields that it lacks. A Lease decides which replica leads ([`Election`]), by
//! client-go's protocol.

mod client;
mod discovery;
pub mod election;
mod events;
mod failure;
mod fence;
mod kinds;
pub mod lease;
mod pages;
mod patch;
mod permissions;
mod proxy;
mod retry_after;
mod store;
mod throttle;
mod transport;
mod watch;

pub use client::{Access, ConnectError, client, connect};
pub use discovery::served_at;
pub use election::{
    Election, ElectionHealth, ElectionMetrics, ElectionOptions, ElectionTiming, Ended,
    ReplicaIdentity, Term,
};
pub use events::{
    EventRecorder, EventType, EventWriter, Events, ObjectReference, object_reference,
};
pub use failure::{ApiFailure, REQUEST_TIMEOUT, bounded, with_causes};
pub use fence::writing_until;
pub use kinds::*;
pub use pages::Pages;
pub use patch::{Objects, Part, Patch};
pub use permissions::{MissingVerb, Permissions};
pub use store::{Change, Key, Store, Subscription};
pub use throttle::Throttle;
pub use watch::Watch;
