//! For driver authors: a CSI driver from small traits.
//!
//! A driver implements the traits of [`driver`], one per group of capabilities, and hands them to a
//! [builder](Plugin::builder). Handing one in is what turns its capability on, so what is advertised and what is there
//! cannot differ; the rest answers UNIMPLEMENTED. `examples/driver` is a whole driver in under 150 lines.
//!
//! The SDK does what drivers get wrong:
//!
//! - [requests](request) are typed and checked: required fields, lengths, control characters, paths; what is refused
//!   is refused with a text that names the field. [Secrets](types::Secrets) cannot be printed;
//! - [errors](error) are an enum per RPC, with the conditions that this RPC may report and no others;
//! - a call runs in a task of its own under its [locks](#locks). The orchestrator may give up and ask again: the same
//!   request joins the running operation, a conflicting one gets ABORTED at once, and a panic fails one call;
//! - a name gives one object: the [fingerprint](Fingerprint) of the first request decides what a repeated one gets;
//! - lists have pages whose tokens survive deletions;
//! - the server takes over stale sockets, tells [readiness](Readiness), and lets operations finish when it stops.
//!
//! For tests there are [fault points](fault), at which a driver can be killed or failed, and behind the feature `laws`
//! the laws that csi-sanity does not check.
//!
//! # Locks
//!
//! X is exclusive, S is shared. An operation that finds one of its keys taken is ABORTED. What only reads takes none.
//!
//! | RPC | keys |
//! |---|---|
//! | CreateVolume | name X; source volume or source snapshot S |
//! | DeleteVolume, ControllerExpandVolume, ControllerModifyVolume | volume X |
//! | NodeStageVolume, NodeUnstageVolume, NodeExpandVolume | volume X |
//! | ControllerPublishVolume | volume S; volume and node X; attachments of the volume S if its mode allows many nodes, else X |
//! | ControllerUnpublishVolume | volume S; volume and node X; attachments S. From all nodes: attachments X |
//! | NodePublishVolume | volume S; volume and target X; targets of the volume S if its mode allows many targets, else X |
//! | NodeUnpublishVolume | volume S; volume and target X; targets S |
//! | CreateSnapshot | name X; source volume X |
//! | DeleteSnapshot | snapshot X |
//! | CreateVolumeGroupSnapshot | name X; every source volume X |
//! | DeleteVolumeGroupSnapshot | group X; every listed snapshot X; a group that exists is not deleted without its list |
//!
//! Two targets of one volume are published at the same time, so a driver that looks up, attaches and binds a device takes a
//! [lock of the device](resource_locks) as well.
//!
//! So a driver that finds a volume published to no other node can publish it to this one: nobody else is doing the
//! same. Two creates under different names do run at the same time, and so do two restores of one snapshot.

pub mod driver;
mod endpoint;
pub mod error;
pub mod fault;
mod fingerprint;
#[cfg(feature = "laws")]
pub mod laws;
mod locked;
mod locks;
mod metrics;
mod operations;
mod paging;
mod parts;
mod plugin;
mod readiness;
pub mod request;
pub mod resource_locks;
mod server;
mod service;
pub mod types;

/// Everything that a driver names, for `use wharf_csi_sdk::prelude::*`.
pub mod prelude {
    pub use crate::driver::*;
    pub use crate::error::*;
    pub use crate::request::*;
    pub use crate::types::*;
    pub use crate::{Endpoint, Fingerprint, Plugin, Readiness, async_trait};
}

pub use async_trait::async_trait;
pub use endpoint::{Endpoint, EndpointError};
pub use fingerprint::Fingerprint;
pub use metrics::DriverMetrics;
pub use plugin::{BuildError, Plugin, PluginBuilder};
pub use readiness::Readiness;
pub use server::{Server, ServerError, Services, Socket};
