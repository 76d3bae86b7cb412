//! The node's side: from sockets in a folder to registered plugins.
//!
//! `PluginState` holds the desired and the actual state, and decides the next step of a socket.
//! `Operator` executes that step: it calls the plugin and its handler.
//! [`PluginManager`] connects them with the watched folder and the reconciler.

mod dial;
mod events;
mod handler;
mod metrics;
mod operation;
mod plugin_manager;
mod plugin_state;
#[cfg(test)]
mod tests;

pub use dial::{Conversation, Dial, SocketDial};
pub use events::{EventKind, PluginEvent};
pub use handler::{Handlers, Plugin, PluginHandler, PluginRefusal};
pub use metrics::ManagerMetrics;
pub use plugin_manager::{ManagerOptions, PluginManager};
pub use plugin_state::{PluginView, State};
