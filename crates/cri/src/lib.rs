//! A client of container runtimes (CRI).
//!
//! CRI lists pods and containers, but the configuration that they were created with (environment,
//! resources, cgroups) is only in the verbose part of a status, in a format of the runtime's own.
//! This crate reads containerd's; for other runtimes it returns what the protocol itself reports.
//!
//! Each call tries `runtime.v1` first, and `runtime.v1alpha2` if the runtime does not implement
//! that: a runtime may restart as another version. The fields read here are the same in both.
//!
//! - [`Client`]: the calls.
//! - [`Listed`]: a list, decoded one item at a time.
//! - [`PodDetails`], [`ContainerDetails`]: status and configuration of one pod or container.

mod client;
mod details;
mod env;
mod info;
mod listed;

pub use client::{Client, ClientOptions};
pub use details::{ContainerConfig, ContainerDetails, PodDetails};
pub use listed::Listed;
