//! Tests of the crate with real sockets and real folders.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod csi_node;
mod csi_outage;
mod csi_support;
mod device;
mod dra;
mod liveness;
mod manager_faults;
mod manager_folder;
mod manager_handlers;
mod manager_lives;
mod peers_go;
mod recording;
mod registrar;
mod support;
