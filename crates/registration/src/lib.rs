//! Plugin registration, both sides of the socket.
//!
//! A plugin of a node makes a socket in the `plugins_registry` folder and serves `Registration` on
//! it. The node watches the folder, calls `GetInfo`, passes the plugin to the handler of its type,
//! and reports the outcome with `NotifyRegistrationStatus`. When the socket is removed, the node
//! deregisters the plugin.
//!
//! * [`manager`] is the node's side: the sockets that exist (desired state), the plugins that are
//!   registered (actual state), and the operation that brings the one to the other. Plugin types
//!   are left to its [`manager::PluginHandler`]s.
//! * [`csi`], [`device`] and [`dra`] are the handlers of the three types that Kubernetes defines.
//! * [`plugin`] is the plugin's side: the registrar of a CSI driver, and the liveness probe.
//! * [`survey`] lists the plugins of a folder without registering them.
//!
//! Work starts on an event: an inotify event, a finished operation, a lost connection. The only
//! timer is the rescan of the folder.

pub mod csi;
pub mod device;
pub mod dra;
pub mod manager;
pub mod plugin;
pub mod survey;
mod text;
