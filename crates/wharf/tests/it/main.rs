//! The binary as its users run it: as processes.

#![allow(clippy::unwrap_used, missing_docs)]

mod commands;
mod demo;
mod docs;
mod kills;
mod kubelet;
mod support;
