//! For hook server authors: a server that the CRI proxy asks about pods and containers.
//!
//! ```text
//!  kubelet ──CRI──> proxy ──CRI──> runtime
//!                     │ asks, at seven points
//!                     └──> hook server (a unix socket, named by a file in hookserver.d)
//! ```
//!
//! A server implements the traits of [`hook`], one per point at which it is to be asked, and hands them to a
//! [builder](HookServer::builder). Handing one in is what registers its point, so what the proxy is told and what is there
//! cannot differ. `examples/hook-server` is a whole one in under 40 lines.
//!
//! The protocol is koordinator's, and works with its proxy and with ours. It has traps, which the SDK keeps its users from:
//!
//! - an answer says what it changes, and means everything: one with resources clears the cpusets that it leaves out and
//!   zeroes the OOM score; one with an environment replaces all of it. An [adjustment] names changes only, and what the
//!   protocol needs repeated is repeated from the request;
//! - not every point can change everything, and a field that it cannot change is ignored without a word. Each point has
//!   its own type of adjustment, with what it can change and no more;
//! - a zero cannot be told from an absent value. Adjustments that cannot be said are an error that names the field;
//! - environment variables are secrets often enough: [`Env`] cannot be printed with its values.
//!
//! And what servers get wrong by themselves: the socket listens before the file names it; the file appears whole, with its
//! final mode; both are gone after a stop, the file first. A panic fails one call.

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

/// Everything that a hook server names, for `use wharf_hooks::prelude::*`.
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
