//! What the cluster knows about the CSI drivers of this node: the CSINode object, the Node's annotation and its
//! topology labels.
//!
//! [`NodeRecord`] is told which drivers there are and writes what differs until it is right (level-triggered). A driver
//! that leaves keeps its entry for a grace period, so that the restart of a driver does not let the scheduler believe
//! that any number of volumes fits. What to write is computed by the pure functions of [`plan`].

mod api;
pub mod plan;
#[cfg(test)]
mod plan_tests;
mod record;
#[cfg(test)]
mod record_tests;
mod writer;

pub use api::ApiObjects;
pub use record::{NoApi, NodeObjects, NodeRecord, RecordOptions, SyncError};
