//! Names and formulas that other programs read.
//!
//! Kubernetes components find each other's work by names that are nowhere in an API: the attach/detach controller and
//! the kubelet both compute the name of a `VolumeAttachment`, sidecars recognise their own finalizers, two replicas
//! meet at a lease. All of these are here, once, as constants and pure functions: no I/O, no types of any client
//! library. A value may never change unless upstream's does. [`text`] has how texts of others are shown.

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
