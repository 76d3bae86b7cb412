//! gRPC over unix sockets, the way the programs of a Kubernetes node speak it.
//!
//! wharf serves gRPC with a [`Listener`], calls it with a [`Channel`], and relays calls unchanged
//! with a [`Relay`]; no other crate names an HTTP/2 transport. They are built on hyper and h2,
//! because tonic's transport lacks what a node needs:
//!
//! - a socket that appears under its name only when it is listening, with its final mode, and that
//!   never replaces a socket that is served ([`Listener::bind`]);
//! - callers that put a percent-encoded path into `:authority`, which hyper refuses: the
//!   [authority](Listener) is repaired on its way in;
//! - limits that are checked before a call gets a task: streams, resets and header lists per
//!   connection, calls under way and given up per process;
//! - a stop that lets calls finish, bounded by a drain time, and leaves no task behind
//!   ([`Listener::serve`]);
//! - a connection that reports its loss as an event ([`Channel::link`]), reconnects by itself, and
//!   does no work while it is idle;
//! - errors that name the socket, and every call in a debug log and a histogram ([`RpcMetrics`]),
//!   by method and code and never by content.

mod accept;
mod address;
mod admission;
mod authority;
mod backoff;
mod call;
mod chain;
mod channel;
mod claim;
mod clients;
mod connection;
mod deadline;
mod endpoint;
mod guard;
mod inherited;
mod limits;
mod lines;
mod link;
mod listen;
mod metrics;
mod pass;
mod raw;
mod serve;
mod silence;
mod tasks;

pub use accept::ServeError;
pub use channel::{Channel, ChannelOptions};
pub use claim::SocketFile;
pub use clients::Clients;
pub use connection::{DialCause, DialError, PeerCheck};
pub use deadline::{timed, within};
pub use endpoint::{EndpointError, socket_of};
pub use inherited::bound_path;
pub use lines::{LineCall, ask_line, begin_ask};
pub use link::LinkState;
pub use listen::{ListenError, ListenOptions, Listener, ListenerHandle};
pub use metrics::{RpcMetrics, code_name};
pub use pass::{receive_files, send_files};
pub use raw::{Carried, RawAnswer, RawCall, Relay, RelayOptions, probe};
pub use serve::PeerCredentials;
pub use silence::Silence;
pub use tonic::service::Routes;
