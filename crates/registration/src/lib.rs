//! Plugin registration, both sides of the socket.
//!
//! A plugin of a node makes a socket in the `plugins_registry` folder and serves `Registration` on it. The node looks
//! into the folder, asks `GetInfo`, hands the plugin to the handler of its type, and tells it the outcome with
//! `NotifyRegistrationStatus`. When the socket goes, the plugin is deregistered.
//!
//! * [`manager`] is the node's side: what sockets there are (desired), what is registered (actual), and the operation
//!   that brings the one to the other. It knows nothing of plugin types: those are [`manager::PluginHandler`]s.
//! * [`csi`], [`device`] and [`dra`] are the handlers of the three types that Kubernetes knows.
//! * [`plugin`] is the other side: the registrar that stands beside a CSI driver, and the liveness probe.
//! * [`survey`] looks at a folder for people, without disturbing a plugin.
//!
//! Everything starts on an event: an inotify event, a finished operation, a lost connection. The only clock is the
//! safety rescan of the folder.

pub mod csi;
pub mod device;
pub mod dra;
pub mod manager;
pub mod plugin;
pub mod survey;
mod text;
