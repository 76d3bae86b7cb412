//! A proxy between a client that writes its own streams and a runtime that records them.

#![allow(clippy::unwrap_used, missing_docs)]

mod attacks;
mod authority;
mod carried;
mod client;
mod config;
mod drain;
mod ends;
mod fixture;
mod hooked;
mod load;
mod random;
mod resets;
mod restarts;
