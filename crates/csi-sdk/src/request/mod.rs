//! Requests as a driver sees them: typed, and checked against the limits of the protocol.
//!
//! Each is named after its RPC and made from its wire form. A request that gets here has every required field, no text
//! that is too long or holds control characters, and paths that lead where they say.

mod check;
mod controller;
mod group;
mod node;
mod snapshot;

pub(crate) use check::{snapshot_filter, snapshot_id, volume_id};
pub use controller::{
    ControllerExpandVolume, ControllerModifyVolume, ControllerPublishVolume,
    ControllerUnpublishVolume, CreateVolume, DeleteVolume, GetCapacity, ValidateVolumeCapabilities,
};
pub use group::{CreateVolumeGroupSnapshot, DeleteVolumeGroupSnapshot, GetVolumeGroupSnapshot};
pub use node::{
    NodeExpandVolume, NodeGetVolumeHealth, NodeGetVolumeStats, NodePublishVolume, NodeStageVolume,
    NodeUnpublishVolume, NodeUnstageVolume,
};
pub use snapshot::{CreateSnapshot, DeleteSnapshot};

#[cfg(test)]
mod tests;
