//! The plugin's side of the socket: what stands beside a CSI driver.
//!
//! * [`Registrar`] makes the registration socket and answers the kubelet, for a driver that does not do so itself.
//! * [`liveness`] answers whether a driver lives, over HTTP.
//! * [`serve_registration`] is for plugins that register themselves.

pub mod liveness;
mod registrar;
mod service;

pub use registrar::{Registrar, RegistrarError, RegistrarHealth, RegistrarOptions};
pub use service::{Verdict, serve_registration};
