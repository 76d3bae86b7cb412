//! The proxy that stands between kubelet and container runtime.
//!
//! ```text
//!  kubelet, crictl ──CRI──> Listener ──> Proxy ──> Relay ──one held connection──> containerd
//! ```
//!
//! A proxy is older than the runtime and the kubelet that it will meet: a field or a method that it
//! does not know is a matter of time, and to drop one is to run a pod without what it asked for. So
//! a [`Proxy`] carries calls as HTTP/2 streams and decodes nothing: headers, data, trailers and
//! resets arrive as they were sent, for any service and any method, `runtime.v1` and
//! `runtime.v1alpha2` alike. Nothing is negotiated with the runtime at start either. Calls are
//! taken at once, and while there is no runtime behind they are answered UNAVAILABLE, which kubelet
//! knows to wait out.
//!
//! What is to be done with a call is decided in one place, by its method, before anything of its
//! message is read.

mod audit;
mod busy_poll;
mod chain;
mod config;
mod container;
mod control;
mod edit;
mod env;
mod events;
mod explain;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod handover;
mod hook_metrics;
mod id;
mod identity;
mod intercept;
mod map;
mod metrics;
mod partial;
mod pod;
mod proxy;
mod rebuild;
mod record;
mod resources;
mod subject;
mod tap;

pub use chain::Conflict;
pub use config::{
    Answers, Config, ConfigError, ConfigHandle, ConfigOptions, ConfigStatus, Effect, FailurePolicy,
    FileError, FileState, FileWarning, Finding, FolderError, Report, Server, ServerStatus, Servers,
    check, trust_file,
};
pub use control::{Control, ControlAnswer, ControlQuestion, SuccessionRequest};
pub use events::EventsState;
pub use explain::{
    Body as DecisionBody, CallEnd, Change, ChangeEffect, Decision, Explanation, ServerDecision,
    Shown, Verdict,
};
pub use handover::{
    Finishing, Followed, HandOver, HandOverError, Hello, PassedFile, PassedSocket, Predecessor,
};
pub use hook_metrics::HookMetrics;
pub use identity::Identity;
pub use intercept::Skip;
pub use proxy::{Proxy, ProxyOptions};
pub use subject::Reading;
pub use tap::{TapCall, TapEnd, TapEvent, TapFilter, TapLine};
pub use wharf_facts::hook::HookPoint;
