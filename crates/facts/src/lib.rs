//! Names and formulas that other programs read.
//!
//! Kubernetes components find each other's objects by names that no API defines: the attach/detach
//! controller and the kubelet both compute the name of a `VolumeAttachment`, sidecars recognise
//! their own finalizers, two replicas use the same lease. This crate defines these names once, as
//! constants and pure functions: no I/O, no types of any client library. A value may change only
//! when upstream's does. [`text`] makes foreign texts safe to print.

pub mod access_mode;
pub mod annotation;
pub mod context;
pub mod finalizer;
pub mod hook;
pub mod label;
pub mod lease;
pub mod migration;
pub mod paths;
pub mod quantity;
pub mod text;
pub mod validation;
pub mod version;
pub mod volume;

mod sanitise;
