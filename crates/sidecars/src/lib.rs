//! Controllers between the Kubernetes API and a CSI driver. Upstream runs each as a sidecar of its
//! own.
//!
//! Here they share a process, and with it one watch and one cache per kind ([`Caches`]). Each
//! controller has the same shape: a pure decision on the next step for an object, an operation next
//! to it that performs the step, and a queue that runs one operation at a time per object.
//!
//! | module | upstream |
//! |---|---|
//! | [`attacher`] | external-attacher |
//! | [`provisioner`] | external-provisioner |
//! | [`resizer`] | external-resizer |
//! | [`snapshotter`] | csi-snapshotter of external-snapshotter |
//! | [`snapshot_controller`] | snapshot-controller of external-snapshotter |
//! | [`crds`] | the CustomResourceDefinitions of snapshots |
//! | [`inspect`] | none: explains what objects wait for |
//! | [`not_served`] | none: reports objects that ask for unsupported features |
//! | [`unsettled`] | none: removes marks that the provisioner left on claims |

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
mod secret;
mod snapshot_class;
mod template;
mod triggers;

pub use caches::{Caches, WatchState, Watched};
