//! For plugin authors: a plugin that registers itself with the node.
//!
//! A node plugin makes a socket in the node's `plugins_registry` folder and serves `Registration` on it.
//! [`serve_registration`] is that service, and tells what the node makes of the plugin. Add the plugin's own service to
//! the same routes, or name another socket as the endpoint. `examples/plugin` is a whole plugin in under a hundred lines.
//!
//! This crate knows nothing of Kubernetes' API, so a plugin stays small.

mod service;

pub use service::{Verdict, serve_registration};
