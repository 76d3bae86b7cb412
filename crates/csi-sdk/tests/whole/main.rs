//! A driver with every part, in memory: the SDK as an orchestrator sees it.

#![allow(clippy::unwrap_used, missing_docs)]

mod driver;
mod log;
mod node;
mod serving;
mod snapshots;

mod behaviour;
mod fault;
mod laws;
mod sanity;
