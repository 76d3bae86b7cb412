//! Typed requests, checked against the limits of the protocol.
//!
//! Each type is named after its RPC and converted from the wire message. A request that a driver
//! receives has every required field, no text that is too long or has control characters, and no
//! path with `..`.

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
