//! The provisioner.

mod bench;
mod capacity;
mod claims;
mod deletion;
mod faults;
mod leftovers;
mod local;
mod sources;
mod states;
mod topology;
pub(crate) mod volumes;
