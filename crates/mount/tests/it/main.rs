//! Tests with real loop devices, filesystems and mounts, as root, in temporary folders.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod binds;
mod clones;
mod filesystems;
mod fixture;
mod freezing;
mod growing;
mod loops;
mod mounts;
