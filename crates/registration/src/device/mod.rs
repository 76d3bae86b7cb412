//! The handler of `DevicePlugin`s: which devices of which resource there are, and how they are.
//!
//! A device plugin registers through its socket in `plugins_registry`, or the old way, by calling `Register` on
//! `kubelet.sock` ([`LegacyServer`]). Either way its device list is followed into the [`Inventory`]. Handing devices to
//! containers is an allocator's work, and none is part of this.

mod handler;
mod inventory;
mod legacy;

pub use handler::DeviceHandler;
pub use inventory::{Device, Inventory, ResourceView};
pub use legacy::{LegacyError, LegacyServer};
