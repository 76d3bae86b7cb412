//! Tests against a real kube-apiserver.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod election;
mod events;
mod restore;
