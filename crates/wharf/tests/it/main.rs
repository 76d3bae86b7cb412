//! The binary as its users run it: as processes.

#![allow(clippy::unwrap_used, missing_docs)]

mod commands;
mod csi;
mod csi_driver;
mod csi_peer;
mod demo;
mod docs;
mod kills;
mod kubelet;
mod proxy;
mod proxy_containerd;
mod support;
