//! The handler of `DevicePlugin`s: the devices of each resource, and their health.
//!
//! A device plugin registers through its socket in `plugins_registry`, or the old way, by calling
//! `Register` on `kubelet.sock` ([`LegacyServer`]). Either way its device list is followed into the
//! [`Inventory`]. Allocating devices to containers is not part of this module.

mod handler;
mod inventory;
mod legacy;

pub use handler::DeviceHandler;
pub use inventory::{Device, Inventory, ResourceView};
pub use legacy::{LegacyError, LegacyServer};
