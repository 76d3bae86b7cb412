//! Tests of the crate over real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod authority;
mod channel;
mod echo;
mod hostile;
mod late;
mod lines;
mod listen;
mod metrics;
mod overflow;
mod passed;
mod raw;
mod serve;
