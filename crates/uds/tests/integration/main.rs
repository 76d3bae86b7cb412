//! The crate over real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod authority;
mod channel;
mod echo;
mod listen;
mod metrics;
mod raw;
mod serve;
