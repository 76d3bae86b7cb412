//! The CSI sidecars under the names and with the flags of the Go programs that they replace.
//!
//! Each personality declares its own flags beside those that all have ([`flags`]), and gives the controller that does
//! its work. The rest is one shell: it waits for the driver, serves metrics and health, stands for election, and runs
//! the controller for as long as it leads and the driver stays what it was.

pub(crate) mod attacher;
mod controller;
mod driver;
mod election;
mod flags;
mod groups;
pub(crate) mod provisioner;
pub(crate) mod resizer;
mod shell;
pub(crate) mod snapshot_controller;
pub(crate) mod snapshotter;
