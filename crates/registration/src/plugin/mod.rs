//! The plugin's side of the socket: what stands beside a CSI driver.
//!
//! * [`Registrar`] makes the registration socket and answers the kubelet, for a driver that does not do so itself.
//! * [`liveness`] answers whether a driver lives, over HTTP.
//!
//! A plugin that registers itself needs neither: see the `wharf-plugin` crate.

pub mod liveness;
mod registrar;

pub use registrar::{Registrar, RegistrarError, RegistrarHealth, RegistrarOptions};
