//! The plugin's side of the socket: the registrar and the liveness probe of a CSI driver.
//!
//! * [`Registrar`] makes the registration socket and answers the kubelet, for a driver that does
//!   not register itself.
//! * [`liveness`] probes a driver for an HTTP health endpoint.
//!
//! A plugin that registers itself needs neither: see the `wharf-plugin` crate.

pub mod liveness;
mod registrar;

pub use registrar::{Registrar, RegistrarError, RegistrarHealth, RegistrarOptions};
