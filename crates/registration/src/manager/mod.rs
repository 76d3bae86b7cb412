//! The node's side: from sockets in a folder to registered plugins.
//!
//! `World` holds what is and what should be and decides, purely, what comes next for a socket.
//! `Operator` carries that step out: it talks to the plugin and calls the handler.
//! [`PluginManager`] joins them with the watched folder and the reconcile kernel.

mod events;
mod handler;
mod metrics;
#[cfg(test)]
mod model_test;
mod operation;
mod running;
mod talk;
mod world;

pub use events::{EventKind, PluginEvent};
pub use handler::{Handlers, Plugin, PluginHandler, Refusal};
pub use metrics::ManagerMetrics;
pub use running::{ManagerOptions, PluginManager};
pub use talk::{Conversation, Dial, SocketDial};
pub use world::{PluginView, State};
