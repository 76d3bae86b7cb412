//! Kubernetes plumbing: a client, shared watches and caches, guarded writes, what errors mean, and core events.
//!
//! Each kind is watched once per process, by a [`Watch`] that keeps a [`Store`] of trimmed [kinds](Kind), and all controllers
//! read from there. Objects that wharf writes are patched, or read, edited and written as whole JSON documents ([`Objects`]):
//! a trimmed struct that is written back would lose the fields that it does not know.

mod client;
mod events;
mod failure;
mod kinds;
mod patch;
mod store;
mod watch;

pub use client::{ConnectError, connect};
pub use events::{EventRecorder, EventType};
pub use failure::{ApiFailure, REQUEST_TIMEOUT, bounded};
pub use kinds::{
    Attributes, CsiNode, CsiNodeDriver, CsiNodeSpec, CsiVolumeSource, Index, IndexedBy, Kind, Meta,
    PersistentVolume, PersistentVolumeSpec, SecretReference, VolumeAttachment,
    VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus,
};
pub use patch::{Objects, Part, Patch};
pub use store::{Change, Key, Store, Subscription};
pub use watch::Watch;
