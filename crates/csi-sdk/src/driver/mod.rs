//! The traits of a driver, one per group of capabilities. Handing one to the [builder](crate::PluginBuilder) is what
//! turns its capability on.
//!
//! Every method may be cut at any instruction, by a crash, and is then called again with the same request: it has to
//! find what it left behind and go on from there. While a call runs, no other call of the SDK's [table of
//! locks](crate#locks) touches the same object.

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

/// Something that a driver has made whole, with the fingerprint of the request that it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing<T> {
    /// As it was in the request to create.
    pub fingerprint: Fingerprint,
    /// What there is, as it is now.
    pub object: T,
}
