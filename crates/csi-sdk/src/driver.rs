//! The traits of a driver, one per group of capabilities. Passing an implementation to the
//! [builder](crate::PluginBuilder) advertises its capabilities.
//!
//! A crash may end any method at any instruction. The orchestrator then repeats the call, and the
//! method must find the state left behind and continue from it. While a call runs, no other call
//! touches the same object ([table of locks](crate#locks)).

mod controller;
mod node;
mod snapshot;

pub use controller::{
    Attachments, CapacityReport, Expansion, Modification, VolumeHealth, VolumeList, VolumeLookup,
    Volumes,
};
pub use node::{Node, NodeExpansion, NodeVolumeHealth, Staging, Stats, StorageHealth};
pub use snapshot::{GroupSnapshots, SnapshotList, SnapshotLookup, Snapshots};

use crate::fingerprint::Fingerprint;

/// A complete object of the driver, with the fingerprint of the request that created it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing<T> {
    /// Fingerprint of the request that created the object.
    pub fingerprint: Fingerprint,
    /// The object in its present state.
    pub object: T,
}
