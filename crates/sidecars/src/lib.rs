//! Controllers between the Kubernetes API and a CSI driver: what upstream runs as sidecars, one process each.
//!
//! Here they share a process, and with it one watch and one cache per kind ([`Caches`]). Each controller has the same
//! shape: a pure decision on what an object needs next, an operation beside it that does that, and a queue that runs
//! operations one at a time per object.
//!
//! | module | stands for |
//! |---|---|
//! | [`attacher`] | external-attacher |
//! | [`provisioner`] | external-provisioner |
//! | [`resizer`] | external-resizer |
//! | [`snapshotter`] | csi-snapshotter of external-snapshotter |
//! | [`snapshot_controller`] | snapshot-controller of external-snapshotter |
//! | [`crds`] | the declarations of the kinds of snapshots |
//! | [`inspect`] | nothing: it tells people what objects wait for |
//! | [`not_served`] | nothing: it says which objects ask for what is not built |
//! | [`unsettled`] | nothing: it removes marks that the provisioner left on claims |

pub mod attacher;
pub mod crds;
pub mod inspect;
pub mod not_served;
pub mod provisioner;
pub mod resizer;
pub mod snapshot_controller;
pub mod snapshotter;
pub mod unsettled;

mod attributes_api;
mod caches;
mod capability;
mod occasions;
mod secret;
mod snapshot_class;
mod template;

pub use caches::{Caches, WatchState, Watched};
