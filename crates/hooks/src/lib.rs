//! For hook server authors: a server that the CRI proxy calls about pods and containers.
//!
//! ```text
//!  kubelet ──CRI──> proxy ──CRI──> runtime
//!                     │ calls, at seven points
//!                     └──> hook server (a unix socket, named by a file in hookserver.d)
//! ```
//!
//! A server implements a trait of [`hook`] for each point, and passes its hooks to a
//! [builder](HookServer::builder). The server's file lists exactly these points.
//! `examples/hook-server` is a whole server in under 40 lines.
//!
//! ```
//! use std::sync::Arc;
//!
//! use wharf_hooks::prelude::*;
//!
//! /// Pins the containers of pods with the label `noisy` to CPU 0.
//! struct Quarantine;
//!
//! #[async_trait]
//! impl PreCreateContainer for Quarantine {
//!     async fn pre_create_container(
//!         &self,
//!         container: &Container,
//!     ) -> Result<ContainerAdjustment, Refusal> {
//!         Ok(match container.pod.labels.contains_key("noisy") {
//!             true => ContainerAdjustment::new().cpuset("0"),
//!             false => ContainerAdjustment::new(),
//!         })
//!     }
//! }
//!
//! let server =
//!     HookServer::builder("quarantine").pre_create_container(Arc::new(Quarantine)).build()?;
//! assert!(server.offered().contains(&HookPoint::PreCreateContainer));
//! // In `main`: server.run(socket, "/etc/runtime/hookserver.d".as_ref()).await
//! # Ok::<(), wharf_hooks::BuildError>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`hook`] | a trait per hook point |
//! | [`adjustment`] | the changes that a hook returns |
//! | [`prelude`] | the names that a server uses |
//!
//! The protocol is koordinator's, and works with its proxy and with ours. The SDK avoids its traps:
//!
//! * An answer replaces whole groups of fields: one with resources clears the cpusets that it
//!   leaves out and zeroes the OOM score; one with an environment replaces all variables. An
//!   [adjustment] has changes only, and the SDK repeats the other fields of the request.
//! * A point accepts changes of some fields, and ignores others without an error. Each point has
//!   its own type of adjustment, with the fields that it accepts.
//! * Zero and absent are the same on the wire. An adjustment that cannot be expressed is an error
//!   that names the field.
//! * Environment variables are often secrets: [`Env`] never prints their values.
//!
//! It also gets the life of a server right: the socket listens before the file names it; the file
//! appears complete, with its final mode; a stop removes both, the file first. A panic fails one
//! call.

pub mod adjustment;
mod config;
mod env;
pub mod hook;
mod metrics;
mod outcome;
mod qos;
mod refusal;
mod registration;
mod request;
mod server;
mod service;
mod serving;

/// The names that a hook server uses, for `use wharf_hooks::prelude::*`.
pub mod prelude {
    pub use crate::adjustment::{ContainerAdjustment, PodAdjustment, ResourceAdjustment};
    pub use crate::hook::*;
    pub use crate::{
        Container, FailurePolicy, HookPoint, HookServer, Outcome, Pod, PodSandbox, QosClass,
        Refusal, async_trait,
    };
}

pub use async_trait::async_trait;
pub use env::Env;
pub use metrics::HookMetrics;
pub use outcome::Outcome;
pub use qos::QosClass;
pub use refusal::Refusal;
pub use registration::RegistrationError;
pub use request::{Container, Details, Mount, Pod, PodSandbox, Resources};
pub use server::{BuildError, HookServer, HookServerBuilder};
pub use serving::ServerError;
pub use tonic::Code;
pub use wharf_facts::hook::{FailurePolicy, HookPoint};
