//! Tests of the SDK with an in-memory driver that has every capability.

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
