//! Controllers between the Kubernetes API and a CSI driver: what upstream runs as sidecars, one process each.
//!
//! Here they share a process, and with it one watch and one cache per kind ([`Caches`]). Each controller has the same
//! shape: a pure decision on what an object needs next, an operation beside it that does that, and a queue that runs
//! operations one at a time per object.
//!
//! | module | stands for |
//! |---|---|
//! | [`attacher`] | external-attacher |
//! | [`resizer`] | external-resizer |

pub mod attacher;
pub mod inspect;
pub mod resizer;

mod caches;
mod capability;
mod secret;

pub use caches::{Caches, Watched};
