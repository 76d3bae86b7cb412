//! A client for container runtimes: which pods and containers there are, and how they were made.
//!
//! The protocol lists pods and containers, but does not say what they were asked to be: environment, resources and
//! cgroups are in the verbose part of a status alone, which is a document of the runtime's own. [`Client`] reads that
//! of containerd ([`PodDetails`], [`ContainerDetails`]); of a runtime that writes another one it tells what the
//! protocol itself has.
//!
//! `runtime.v1` is asked first and `runtime.v1alpha2` where the runtime does not know that, at each call: a runtime
//! may come back as another version. The messages of the two agree in everything that is read here.

mod client;
mod details;
mod env;
mod info;
mod listed;

pub use client::{Client, ClientOptions};
pub use details::{ContainerConfig, ContainerDetails, PodDetails};
pub use listed::Listed;
