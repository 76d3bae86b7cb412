//! The CSI drivers of this node in the Kubernetes API: the CSINode object, the Node's annotation
//! and its topology labels.
//!
//! [`NodeRecord`] receives the set of drivers, and writes the difference to the API until it
//! succeeds (level-triggered). A driver that leaves keeps its entry for a grace period: while the
//! entry is missing, the scheduler assumes that any number of volumes fits. The pure functions of
//! [`plan`] compute the writes.

mod api;
pub mod plan;
mod record;
mod writer;

pub use api::ApiObjects;
pub use record::{NoApi, NodeObjects, NodeRecord, RecordOptions, SyncError};
