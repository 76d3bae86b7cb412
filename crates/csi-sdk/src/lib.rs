//! An SDK for authors of CSI drivers: implement small traits, get a complete driver.
//!
//! A driver implements the traits of [`driver`], one per group of capabilities, and passes them to
//! a [builder](Plugin::builder). Passing one advertises its capability, so the driver advertises
//! exactly what it implements; all other RPCs return UNIMPLEMENTED. `examples/driver` is a complete
//! driver in under 150 lines.
//!
//! ```
//! use std::sync::Arc;
//!
//! use wharf_csi_sdk::prelude::*;
//!
//! struct Folders;
//!
//! #[async_trait]
//! impl Node for Folders {
//!     async fn info(&self) -> Result<NodeInfo, Failure> {
//!         Ok(NodeInfo::new("node-1"))
//!     }
//!
//!     async fn publish(&self, request: NodePublishVolume) -> Result<(), NodePublishVolumeError> {
//!         let target = request.target_path;
//!         let made = std::fs::create_dir_all(&target);
//!         Ok(made.map_err(|error| Failure::caused_by(target.display(), &error))?)
//!     }
//!
//!     async fn unpublish(
//!         &self,
//!         request: NodeUnpublishVolume,
//!     ) -> Result<(), NodeUnpublishVolumeError> {
//!         // A repeated call finds no folder, and succeeds.
//!         let _ = std::fs::remove_dir(&request.target_path);
//!         Ok(())
//!     }
//! }
//!
//! let plugin = Plugin::builder("folders.csi.example.com",
//! "1.0.0").node(Arc::new(Folders)).build()?;
//! assert_eq!(plugin.name(), "folders.csi.example.com");
//! // In an async main: plugin.run(Endpoint::from_env()?).await?;
//! # Ok::<(), wharf_csi_sdk::BuildError>(())
//! ```
//!
//! The SDK handles the parts that drivers get wrong:
//!
//! - [requests](request) are typed and checked: required fields, lengths, control characters,
//!   paths. A refusal names the field. [Secrets](types::Secrets) cannot be printed;
//! - [errors](error) are an enum per RPC with the conditions that CSI allows it to report;
//! - each call runs in its own task under its [locks](#locks). If the orchestrator gives up and
//!   repeats the call, the same request joins the running operation and a conflicting one gets
//!   ABORTED at once. A panic fails one call;
//! - a name gives one object: the [fingerprint](Fingerprint) of the first request decides whether a
//!   repeated one matches;
//! - lists are paged, with tokens that stay valid when objects are deleted;
//! - the server replaces stale sockets, reports [readiness](Readiness), and lets operations finish
//!   when it stops.
//!
//! For tests there are [fault points](fault), where a test can kill or fail a driver, and, with the
//! feature `laws`, the laws that csi-sanity does not check.
//!
//! # Modules
//!
//! - [`driver`]: the traits to implement; [`request`], [`types`] and [`error`] are their arguments
//!   and results.
//! - [`Plugin`], [`PluginBuilder`]: combine implementations into a plugin; [`Server`],
//!   [`Endpoint`], [`Socket`]: serve it.
//! - [`resource_locks`]: locks for devices and images, shared by calls and administrative commands.
//! - [`fault`], `laws`: help for tests.
//!
//! # Locks
//!
//! X is exclusive, S is shared. An operation whose key another operation holds is ABORTED. Calls
//! that only read take no keys.
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
//! Two targets of one volume are published concurrently, so a driver that looks up, attaches and
//! binds a device takes a [lock of the device](resource_locks) as well.
//!
//! A driver that finds a volume published to no other node can publish it to this node: no other
//! call publishes it meanwhile. Two creates under different names run concurrently, and so do two
//! restores of one snapshot.

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

/// All names that a driver needs, for `use wharf_csi_sdk::prelude::*`.
pub mod prelude {
    pub use crate::{
        Endpoint, Fingerprint, Plugin, Readiness, async_trait, driver::*, error::*, request::*,
        types::*,
    };
}

pub use async_trait::async_trait;
pub use endpoint::{Endpoint, EndpointError};
pub use fingerprint::Fingerprint;
pub use metrics::DriverMetrics;
pub use plugin::{BuildError, Plugin, PluginBuilder};
pub use readiness::Readiness;
pub use server::{Server, ServerError, Services, Socket};
