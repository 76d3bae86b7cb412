//! gRPC over unix sockets, the way the programs of a Kubernetes node speak it.
//!
//! Everything of wharf that serves or calls gRPC goes through a [`Listener`] or a [`Channel`], or
//! through a [`Relay`] where calls are passed on as they come; no other crate names an HTTP/2
//! transport. They are built on hyper and h2 rather than on tonic's transport, because a node asks
//! for things that the latter does not give:
//!
//! - a socket that appears under its name only when it is listening, with its final mode, and
//!   that never takes the place of a living one ([`Listener::bind`]);
//! - callers that put a percent-encoded path into `:authority`, which hyper refuses: the
//!   [authority](Listener) is repaired on its way in;
//! - limits of what a client may ask for that hold before a task is spent on its calls: streams, resets, header lists, and
//!   for each process calls under way and calls given up;
//! - a stop that lets calls finish, bounded by a drain time, and leaves no task behind
//!   ([`Listener::serve`]);
//! - a connection whose loss is an event ([`Channel::link`]), that comes back by itself, and that
//!   costs nothing while it is idle;
//! - errors that name the socket, and every call in a debug log and a histogram
//!   ([`RpcMetrics`]), by method and code and never by content.

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
