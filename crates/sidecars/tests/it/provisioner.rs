//! The provisioner.

mod begun;
mod capacity;
mod carried;
mod claims;
mod codes;
mod deletion;
mod faults;
mod fixture;
mod leftovers;
mod levels;
mod local;
mod sources;
mod states;
mod topology;
mod unsettled;
pub(crate) mod volumes;
